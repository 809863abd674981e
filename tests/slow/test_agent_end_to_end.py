"""From training to live decisions: the exported model reads a stream as evaluation scored it; its records replay."""

import json
import re
import signal
import subprocess
import sys

import numpy as np
import openai
import pytest
from test_mains import TINY, run

from prism_jax.evaluation.fits import read_calibration
from prism_jax.scores import read_scores
from prism_jax.streams.sources import load_splits
from prism_jax.training.workdir import Workdir

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]


def lines_of(streams):
    """The events of all streams, interleaved, each with the offers of its step."""
    rows = []
    for stream in streams:
        offers = {step.event: [candidate.text for candidate in step.candidates] for step in stream.steps}
        for i, event in enumerate(stream.events):
            row = {"stream": stream.id, "time": event.time, "text": event.text, "domain": stream.domain}
            rows.append((i, {**row, "candidates": offers.get(i)}))
    return "".join(json.dumps(row) + "\n" for _, row in sorted(rows, key=lambda one: one[0]))


def test_an_exported_model_decides_as_it_was_evaluated(tmp_path):
    workdir, model, records = tmp_path / "run", tmp_path / "model", tmp_path / "records.jsonl"
    assert run("train", *TINY, f"--workdir={workdir}").returncode == 0
    assert run("export", f"--model={workdir}", f"--workdir={model}").returncode == 0
    config = Workdir(workdir).load_config()
    streams = load_splits(config.data, config.simulator).test
    (tmp_path / "in.jsonl").write_text(lines_of(streams))
    live = (f"--model={model}", f"--input={tmp_path / 'in.jsonl'}", f"--records={records}")
    live += (f"--state={tmp_path / 'state'}",)
    done = run("agent", *live)
    assert done.returncode == 0, done.stderr
    assert "programs compiled" in done.stderr
    scores = read_scores(workdir / "scores.parquet")
    scored = {
        (scores.stream[i], scores.step[i], scores.candidate[i]): (scores.p_need_fast[i], scores.p_accept_fast[i])
        for i in range(len(scores))
    }
    decided = {(r["stream"], r["event"]): r for r in map(json.loads, records.read_text().splitlines())}
    fits = read_calibration(workdir / "calibration.json")
    compared = 0
    for stream in streams:
        for number, step in enumerate(stream.steps):
            record = decided[stream.id, step.event]
            for i in range(len(step.candidates)):
                raw = record["fast"]["raw"]
                found = raw["p_need"], raw["p_accept"][i]
                np.testing.assert_allclose(found, scored[stream.id, number, i], atol=1e-5)
                compared += 1
            need = np.array([record["fast"]["raw"]["p_need"]])
            np.testing.assert_allclose(record["p_need_fast"], fits.need_fast.map(need)[0], rtol=1e-12)
            spoke = record["p_accept"] >= 1 / (1 + 2 * record["p_need"])
            assert record["spoke"] == spoke or abs(record["p_accept"] - record["threshold"]) < 1e-12
    assert compared > 40
    again = run("agent", f"--replay={records}")
    assert again.stdout == records.read_text()
    restarted = run("agent", *live)
    assert restarted.returncode == 0 and "no events" in restarted.stderr
    assert again.stdout == records.read_text()
    check_served(model, streams[:4], decided)


def check_served(model, streams, decided):
    """`serve` gives a client, for the same events, the probabilities of the agent's records."""
    command = [sys.executable, "-m", "prism_jax", "serve", f"--model={model}", "--port=0", "--name=student"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        url = next(found[1] for line in server.stderr if (found := re.search(r"serving student at (http\S+)", line)))
        compared = 0
        with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
            for stream in streams:
                offers = {step.event: step.candidates for step in stream.steps}
                parts = [{"time": event.time, "text": event.text} for event in stream.events]
                content = [{"role": "user", "content": [{"type": "input_json", "data": data}]} for data in parts]
                for number in offers:
                    names = ["accept" if own.text is None else f"accept:{own.text}" for own in offers[number]]
                    questions = [{"type": "predicate", "instructions": "?", "name": one} for one in ("need", *names)]
                    asked = client.decisions.create(model="student", input=content[: number + 1], questions=questions)
                    signals = decided[stream.id, number]["fast"]["calibrated"]
                    found = [answer.probability for answer in asked.answers]
                    np.testing.assert_allclose(found, [signals["p_need"], *signals["p_accept"]], rtol=0, atol=1e-6)
                    compared += 1
        assert compared > 10
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0 or server.returncode == -signal.SIGTERM, server.stderr.read()
