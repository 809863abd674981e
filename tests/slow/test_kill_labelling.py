"""kill -9 of labelling at ten random moments: no row is lost, none billed twice, and the file is as without kills."""

import json

import pytest
from etils import epath
from killed import finish, kill_and_finish
from separate import start

from prism_jax.commands.labelling import label_file
from prism_jax.labelling.teacher.labelling import LabellingConfig, TeacherConfig
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import AgentQuality, SimulatedAgent, SimulatedTeacher, TeacherQuality
from prism_jax.proactivebench.prompted import prompt_agent
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate

pytestmark = pytest.mark.slow
ANSWER = ("stream", "event", "thinking", "p_need", "p_accept", "problem")
"""The keys of a row that do not depend on when it was asked, and how often."""


@pytest.fixture(scope="module")
def users():
    """Simulated users, and a teacher who knows them."""
    streams = [simulate(SimulatorConfig(), index) for index in range(60)]
    return streams, SimulatedTeacher(streams, PromptSettings(), TeacherQuality())


def config_of(url, folder):
    endpoint = EndpointConfig("teacher", url, input_price=1.0, output_price=2.0, backoff=0.01, patience=30.0)
    remote = RemoteConfig(str(folder / "cache.sqlite"), budget=5.0)
    return TeacherConfig(endpoint, remote, labelling=LabellingConfig(passes="both", retries=5))


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def label(config, source, output, rows):
    label_file(config, epath.Path(source), epath.Path(output), epath.Path(rows))


def test_killed_labelling_resumes_where_it_was(users, tmp_path):
    streams, teacher = users
    source, output, rows = (tmp_path / name for name in ("streams.jsonl", "labelled.jsonl", "rows.jsonl"))
    write_streams(source, map(without_answers, streams))
    with FakeEndpoint(teacher, Faults(delay=0.05, malformed=0.1, limited=0.05)) as endpoint:
        config = config_of(endpoint.url, tmp_path)

        def begin():
            return start(label, config, str(source), str(output), str(rows))

        kill_and_finish(begin, endpoint, [output, rows], concurrency=8)
        sent = endpoint.received.total()
        finish(begin)
        assert endpoint.received.total() == sent, "a finished job is replayed from the cache"
    whole = tmp_path / "whole"
    whole.mkdir()
    with FakeEndpoint(teacher, Faults(malformed=0.1)) as endpoint:
        label(config_of(endpoint.url, whole), source, whole / "labelled.jsonl", whole / "rows.jsonl")
    assert output.read_bytes() == (whole / "labelled.jsonl").read_bytes()
    found, expected = rows_of(rows), rows_of(whole / "rows.jsonl")
    assert [[row[key] for key in ANSWER] for row in found] == [[row[key] for key in ANSWER] for row in expected]
    assert len(found) == 2 * sum(len(stream.steps) for stream in streams)
    assert all(row["problem"] is None for row in found)
    assert sum(row["cost"] for row in found) > 0


def as_agent(config, source, out):
    prompt_agent(config, None, source, epath.Path(out), epath.Path(f"{out}.rows.jsonl"))


def test_a_killed_agent_of_proactivebench_leaves_no_folder_and_resumes(users, tmp_path):
    streams, _ = users
    source, out, whole = (str(tmp_path / name) for name in ("streams.jsonl", "killed", "whole"))
    write_streams(source, map(without_answers, streams))
    with FakeEndpoint(SimulatedAgent(streams, AgentQuality()), Faults(delay=0.02)) as endpoint:
        config = config_of(endpoint.url, tmp_path)

        def begin():
            return start(as_agent, config, source, out)

        kill_and_finish(begin, endpoint, [tmp_path / "killed"], concurrency=8)
        sent = endpoint.received.total()
        as_agent(config, source, whole)
        assert endpoint.received.total() == sent, "the conversations are the same to the last turn"
    killed, unkilled = (sorted((tmp_path / name).iterdir()) for name in ("killed", "whole"))
    assert len(killed) == len(streams)
    assert [path.read_bytes() for path in killed] == [path.read_bytes() for path in unkilled]
