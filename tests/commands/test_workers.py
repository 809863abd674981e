"""The commands label and judge: `--workers` share a budget and a cache, and no file is written over another."""

import json
import threading

import forked
import pytest
from judged_streams import bare, labelled
from test_judging import minds

from prism_jax.labelling.judges.simulated import by_model
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import AgentQuality, SimulatedAgent, SimulatedTeacher, TeacherQuality
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.streams.edit import without_answers
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.traces import read_traces

PANEL = """
from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.runtime.dataclass_config import to_config_dict


def get_config(url):
    endpoints = {name: EndpointConfig(f"model-{name}", url, input_price=1.0, output_price=1.0) for name in "abc"}
    return to_config_dict(JudgesConfig(endpoints=endpoints))
"""
SETTINGS = ("key=", "input_price=1.0", "output_price=1.0", "max_tokens=500")


class Billed:
    """A brain, and the US dollars that it has billed, at a dollar per million tokens."""

    def __init__(self, brain):
        self.brain, self.spent, self.lock = brain, 0.0, threading.Lock()

    def __call__(self, body):
        text = self.brain(body)
        tokens = sum(len(message["content"]) for message in body["messages"]) // 4 + len(text) // 4 + 1
        with self.lock:
            self.spent += tokens / 1e6
        return text


def label(url, folder, *more):
    where = [f"--config.endpoint.base_url={url}", f"--config.remote.cache={folder}/cache.sqlite"]
    paths = [f"--streams={folder}/in.jsonl", f"--out={folder}/out.jsonl"]
    settings = [f"--config.endpoint.{setting}" for setting in SETTINGS]
    return forked.run("prism_jax", "label", "--config=configs/teacher.py", *where, *settings, *paths, *more)


def judge(url, folder, *more):
    (folder / "panel.py").write_text(PANEL)
    where = [f"--config={folder}/panel.py:{url}", f"--config.remote.cache={folder}/cache.sqlite"]
    paths = [f"--streams={folder}/in.jsonl", f"--votes={folder}/votes.jsonl", f"--out={folder}/out.jsonl"]
    return forked.run("prism_jax", "judge", *where, *paths, *more)


def teacher_of(streams):
    return SimulatedTeacher(streams, PromptSettings(), TeacherQuality())


def panel_of(streams):
    return by_model(minds(streams))


@pytest.mark.parametrize(
    ("command", "brain", "endpoints", "budget"),
    [(label, teacher_of, 1, 0.007), pytest.param(judge, panel_of, 3, 0.006, marks=pytest.mark.slow)],
)
def test_workers_share_a_budget_and_a_cache_and_ask_each_question_once(tmp_path, command, brain, endpoints, budget):
    streams = labelled(4)
    asked = map(without_answers, streams) if command is label else bare(streams)
    write_streams(tmp_path / "in.jsonl", asked)
    brain = Billed(brain(streams))
    with FakeEndpoint(brain, Faults(delay=0.05)) as endpoint:
        done = command(endpoint.url, tmp_path, "--workers=5", f"--config.remote.budget={budget}")
        assert done.returncode == 1 and "error: budget: found" in done.stderr, done.stderr
        assert 0 < brain.spent <= budget
        assert not (tmp_path / "out.jsonl").exists()
        assert endpoint.most_at_once <= 5 * endpoints
        endpoint.most_at_once = 0
        done = command(endpoint.url, tmp_path, "--workers=3", "--config.remote.budget=1.0")
        assert done.returncode == 0, done.stderr
        assert 3 * (endpoints - 1) < endpoint.most_at_once <= 3 * endpoints
        assert max(endpoint.billed.values()) == max(endpoint.received.values()) == 1
        sent, out = endpoint.received.total(), (tmp_path / "out.jsonl").read_bytes()
        done = command(endpoint.url, tmp_path, "--workers=1", "--config.remote.budget=1.0")
        assert done.returncode == 0, done.stderr
        assert endpoint.received.total() == sent, "whatever their number, workers share what was answered"
        assert (tmp_path / "out.jsonl").read_bytes() == out
    assert len(out.splitlines()) == 4 and json.loads(out.splitlines()[0])["id"] == streams[0].id


def test_workers_are_refused_where_nobody_is_asked(tmp_path):
    write_streams(tmp_path / "in.jsonl", bare(labelled(1)))
    done = judge("http://127.0.0.1:1/v1", tmp_path, "--workers=2", "--noask")
    assert "--workers: found it with --noask, expected it where judges are asked" in done.stderr


def test_label_prompts_an_endpoint_as_the_benchmarks_agent(tmp_path):
    streams = labelled(3)
    write_streams(tmp_path / "in.jsonl", map(without_answers, streams))
    config = f"--config={forked.ROOT}/configs/teacher.py"
    flags = ("--agent", config, "--streams=in.jsonl", "--workers=2", "--config.remote.cache=cache.sqlite")
    with FakeEndpoint(SimulatedAgent(streams, AgentQuality(errors=0.0))) as fake:
        settings = ("key=", f"base_url={fake.url}", "input_price=0.0", "output_price=0.0")
        done = forked.run(
            *("prism_jax", "label", *flags, *(f"--config.endpoint.{one}" for one in settings), "--workdir=traces/R1.5"),
            cwd=tmp_path,
        )
        assert done.returncode == 0 and fake.most_at_once <= 2, done.stderr
    assert "personal data is not cut" in done.stderr and "prompt ours: traces/R1.5" in done.stdout
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {"R1.5", "R1.5.rows.jsonl", "R1.5.summary.json"}
    traces = read_traces(tmp_path / "traces/R1.5")
    assert [len(traces[stream.id]) for stream in streams] == [len(stream.events) for stream in streams]
    assert any(event.answer for trace in traces.values() for event in trace)
