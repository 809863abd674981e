"""A teacher that proposes its own offers, by the commands and over HTTP: label, judge, curate."""

import json
import subprocess
import sys

import pytest
from test_mains import ROOT, run

from prism_jax.streams.jsonl import read_streams
from prism_jax.streams.simulator import names, subject

pytestmark = pytest.mark.slow
JUDGES = ("deepseek_r1", "gpt_4o", "claude_3_5_sonnet")


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A folder of unlabelled streams, and the address of a teacher who proposes and of judges."""
    folder = tmp_path_factory.mktemp("users")
    sizes = ("--train=12", "--calibration=1", "--held_out=1", "--accuracy=1", "--response_errors=0.2")
    command = [sys.executable, "-m", "prism_jax.experiments.simulated_users", f"--folder={folder}", *sizes]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        yield folder, json.loads(process.stdout.readline())["url"]
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def made(users):
    """The folder after label, judge and curate, and what each of them printed."""
    folder, url = users

    def address(section, model):
        endpoint = {"base_url": url, "model": model, "key": "", "input_price": 0, "output_price": 0}
        return [f"--config.{section}.{key}={value}" for key, value in endpoint.items()]

    cache = f"--config.remote.cache={folder}/cache.sqlite"
    teacher = ["--config=configs/teacher.py", *address("endpoint", "teacher")]
    panel = ["--config=configs/judges_paper.py"]
    for number, name in enumerate(JUDGES):
        panel += address(f"endpoints.{name}", f"judge-{number}")
    taught, judged = folder / "taught.jsonl", folder / "judged.jsonl"
    commands = {
        "label": [*teacher, cache, f"--streams={folder}/train.jsonl", f"--out={taught}"],
        "judge": [*panel, cache, f"--streams={taught}", f"--votes={folder}/votes.jsonl", f"--out={judged}"],
        "curate": [f"--streams={judged}", f"--out={folder}/curated.jsonl", "--keep=0.5"],
    }
    said = {}
    for main, arguments in commands.items():
        done = run(main, *arguments)
        assert done.returncode == 0, done.stderr
        said[main] = done.stdout
    return folder, said


def offers_of(path):
    return [offer for stream in read_streams(path) for step in stream.steps for offer in step.candidates]


def test_the_teachers_offer_stands_beside_the_constant_one_whether_it_would_speak_or_not(made):
    folder, _ = made
    taught = offers_of(folder / "taught.jsonl")
    assert all(offer.text is None and offer.proposal and offer.teacher_accept is not None for offer in taught)
    assert 0 < sum(offer.response is not None for offer in taught) < len(taught)
    rows = [json.loads(line) for line in (folder / "taught.rows.jsonl").read_text().splitlines()]
    assert [row["proposal"] for row in rows] == [offer.proposal for offer in taught]
    assert [row["spoke"] for row in rows] == [offer.response is not None for offer in taught]
    for offer in taught:
        assert offer.response is None or json.loads(offer.response)["Proactive Task"] == offer.proposal


def test_judges_are_asked_about_every_proposal_and_reject_what_does_not_name_what_the_step_is_about(made):
    folder, said = made
    judged = offers_of(folder / "judged.jsonl")
    assert [offer.proposal for offer in judged] == [offer.proposal for offer in offers_of(folder / "taught.jsonl")]
    assert all(offer.y_accept in (0, 1) and len(offer.votes) == len(JUDGES) for offer in judged)
    assert f"acceptance: {len(judged)} labels" in said["judge"]
    topics = [subject(stream, step.event) for stream in read_streams(folder / "judged.jsonl") for step in stream.steps]
    beside = [offer for offer, topic in zip(judged, topics, strict=True) if not names(offer.proposal, topic)]
    assert beside and all(offer.y_accept == 0 for offer in beside)
    assert any(offer.y_accept == 1 for offer in judged)


def test_curation_keeps_judged_proposals(made):
    folder, said = made
    judged, kept = (offers_of(folder / f"{stage}.jsonl") for stage in ("judged", "curated"))
    assert len(kept) == pytest.approx(len(judged) / 2, abs=4)  # a share of each stratum, rounded
    assert all(offer.proposal and offer.text is None for offer in kept)
    assert "Rows that curation kept" in said["curate"]
