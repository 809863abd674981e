"""A teacher that proposes its own offers, by the commands and over HTTP: label, judge, curate."""

import json
import subprocess
import sys

import pytest
from test_mains import ROOT, run

from prism_jax.streams.jsonl import read_streams

pytestmark = pytest.mark.slow
PROPOSALS = 2
JUDGES = ("deepseek_r1", "gpt_4o", "claude_3_5_sonnet")


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A folder of unlabelled streams, and the address of a teacher who proposes and of judges."""
    folder = tmp_path_factory.mktemp("users")
    sizes = ("--train=12", "--calibration=1", "--held_out=1", "--accuracy=1", f"--proposals={PROPOSALS}")
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
    teacher = ["--config=configs/teacher.py", *address("endpoint", "teacher"), f"--config.prompt.proposals={PROPOSALS}"]
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


def test_the_teachers_offers_take_the_place_of_the_constant_one(made):
    folder, _ = made
    assert {offer.text for offer in offers_of(folder / "train.jsonl")} == {None}
    for stream in read_streams(folder / "taught.jsonl"):
        for step in stream.steps:
            texts = [offer.text for offer in step.candidates]
            assert len(set(texts)) == PROPOSALS and None not in texts
            assert all(offer.teacher_accept is not None for offer in step.candidates)
            assert step.teacher_need is not None and sum(offer.response is not None for offer in step.candidates) < 2


def test_judges_are_asked_about_every_proposal_and_about_silence(made):
    folder, said = made
    taught, judged = (offers_of(folder / f"{stage}.jsonl") for stage in ("taught", "judged"))
    assert [offer.text for offer in judged] == [offer.text for offer in taught]
    assert all(offer.y_accept in (0, 1) and len(offer.votes) == len(JUDGES) for offer in judged)
    assert f"acceptance: {len(judged)} labels" in said["judge"]
    votes = [json.loads(line) for line in (folder / "votes.jsonl").read_text().splitlines()]
    steps = sum(len(stream.steps) for stream in read_streams(folder / "judged.jsonl"))
    assert len(votes) == len(JUDGES) * (len(judged) + steps)


def test_curation_keeps_single_proposals(made):
    folder, said = made
    judged, kept = (offers_of(folder / f"{stage}.jsonl") for stage in ("judged", "curated"))
    assert len(kept) == pytest.approx(len(judged) / 2, abs=4)  # a share of each stratum, rounded
    assert {offer.text for offer in kept} < {offer.text for offer in judged}
    sizes = {len(step.candidates) for stream in read_streams(folder / "curated.jsonl") for step in stream.steps}
    assert sizes == {1, PROPOSALS}
    assert "Rows that curation kept" in said["curate"]
