"""Every reader on damaged files: it reads them or raises a documented error of one line that names the file.

`KEPT` holds the seeds that once found something else. To look further: `PRISM_FUZZ_SEEDS=2000 make test-slow`.
"""

import contextlib
import json
import os
import re
import signal
import sqlite3
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from batches import in_mind
from fake_reader import FakeReader, exported
from gguf_models import write_gguf
from gguf_tokenizers import contents
from gguf_tokenizers import write as write_gguf_tokenizer
from hf_models import random_model
from mutations import BINARY, IMPOSTORS, TEXT, damaged
from student_sizes import small

from prism_jax import Gate
from prism_jax.agent.agent import Agent
from prism_jax.agent.lines import InputLines, parse_line
from prism_jax.agent.people import read_records
from prism_jax.agent.rating import read_scenarios
from prism_jax.agent.records import encode
from prism_jax.agent.records_file import RecordsError, RecordsFile, parse_record, remove_person
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.steps import Observation
from prism_jax.decision.calibration import Platt, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.evaluation.answers.columns import LogColumns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.fits import Calibration, SignalFit, read_calibration, write_calibration
from prism_jax.labelling.judges.votes import Vote, read_votes, write_votes
from prism_jax.labelling.teacher.text_calibrator import TextCalibrator, TextMap, read_text_calibrator
from prism_jax.people.exports import StoreError, population_from, read_export
from prism_jax.people.store import APPLICATION, SCHEMA, PeopleStore, read_file
from prism_jax.runtime.files import read_lines, read_object
from prism_jax.runtime.gguf_file import read_gguf_header
from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.published.activitywatch import read_activitywatch
from prism_jax.streams.published.contextagent import read_contextagent
from prism_jax.streams.published.knowu import read_knowu
from prism_jax.streams.published.recorded import read_recorded
from prism_jax.streams.published.sharegpt import read_sharegpt
from prism_jax.streams.shards import cut, read_shard
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.traces import read_trace
from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer
from prism_jax.student.prompting.template import PromptConfig, make_tokenizer
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import load_gguf, load_hf, save_hf
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir
from studies.audit_tables.reading import read_table

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("PRISM_FUZZ_SEEDS", "50"))
MOST_MEMORY = 64 * 2**20
"""Bytes that Python and NumPy may take for a damaged file; the whole files have less than half a MB."""
MOST_RESIDENT = 2 * 2**30
"""Bytes by which a reader may raise the process's memory at any moment."""
PATIENCE = 60
"""Seconds after which a reader hangs; the slowest needs a few."""
ACCEPTED = {
    "agent's input": {"a link to /dev/null"},
    "records, to resume": {"a link to missing"},
    "store of people": {"a link to missing"},
}
"""What may stand in place of a file without being refused: no input, and the name of a file that is to be made."""
WAITS = ("agent's input", "a FIFO")
"""The input of a live agent is the one file that may be a pipe, and wait for who writes to it."""
KEPT: dict[str, tuple[int, ...]] = {"scores, Parquet": (106,)}

MODEL = Qwen3(small(vocab_size=40, hidden_dim=8, num_layers=1, head_dim=4, mlp_dim=16))


def columns():
    rng = np.random.default_rng(0)
    n = 24
    return {
        "stream": [f"s{i // 6}" for i in range(n)],
        "step": [i % 6 for i in range(n)],
        "split": [("calibration", "test")[i // 6 % 2] for i in range(n)],
        "p_need_fast": rng.random(n),
        "p_accept_fast": rng.random(n),
        "y_need": rng.integers(0, 2, n).astype(float),
        "y_accept": rng.integers(0, 2, n).astype(float),
        "votes": [(True, False)] * n,
        "model": ["other"] * n,
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a whole file of every kind."""
    folder = tmp_path_factory.mktemp("whole")
    streams = [simulate(SimulatorConfig(min_events=3, max_events=3), index) for index in range(3)]
    write_streams(folder / "streams.jsonl", streams)
    for suffix in ("jsonl", "parquet"):
        write_scores(folder / f"scores.{suffix}", Scores.from_columns(columns()))
    save_hf(folder / "model", MODEL, jax.tree.map(np.asarray, MODEL.init(jax.random.key(0))))
    make_tokenizer(streams, PromptConfig(system="Watch.", vocab_size=300)).save(folder / "tokenizer.json")
    fit = SignalFit(Temperature(1.5), base_rate=0.5, count=9, effective_count=9.0, offer_rate=0.5)
    write_calibration(folder / "calibration.json", Calibration(fit, fit))
    Gate(OperatingPoint(), Platt(0.7, 0.1), Temperature(1.5)).save(folder / "gate.json")
    Workdir(folder / "run").claim(RunConfig())
    write_teachers_files(folder)
    write_verdicts(folder / "votes.jsonl")
    write_gguf_tokenizer(folder / "tokenizer.gguf", contents((folder / "tokenizer.json").read_text()))
    write_gguf(folder / "model.gguf", random_model("Llama"))
    write_agents_files(folder, streams)
    write_logs(folder)
    write_published(folder)
    (folder / "printed.csv").write_text(
        "policy,N,Recall,Precision,F1,Accuracy\nours,233,81.3%,70.1%,75.3%,80.2\ntheirs,233,64.9%,66.0%,65.4%,74.1\n"
    )
    return folder


def write_teachers_files(folder):
    """A model's recorded answers, conversations, and a text calibrator."""
    events = [{"Time": f"Day 1, 9:0{i} AM", "Event": f"Event {i}."} for i in range(5)]
    answer = {"Purpose": "To work.", "Thoughts": "Hm.", "Response": "Shall I?"}
    recorded = [
        {"observation": {"time": e["Time"], "event": e["Event"]}, "agent_response": ["Mend it."] * (i % 2)}
        | {"other_infomation": answer}
        for i, e in enumerate(events)
    ]
    (folder / "recorded").mkdir()
    (folder / "recorded" / "code_1.json").write_text(json.dumps(recorded))
    reply = {"from": "gpt", "value": json.dumps(answer | {"Proactive Task": "Mend it."})}
    rows = [[{"from": "human", "value": json.dumps({"Observations": events[:i]})}, reply] for i in range(1, 6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"conversations": row}) + "\n" for row in rows))
    words = {"terms": ("risk:", "risk:low"), "idf": np.array([1.0, 1.5]), "weights": np.array([0.25, -1.0])}
    numbers = {"intercept": 0.5, "scale": 1.0, "bias": 0.0, "base_rate": 0.5, "regularisation": 1.0}
    one = TextMap(**words, **numbers, rows=9, streams=3)
    TextCalibrator(one, one).save(folder / "text.json")


def write_verdicts(path):
    """Verdicts of judges, one of which is missing."""
    sent = {"model": "m-1", "request": "0f" * 32, "time": "2025-01-02T03:04:05+00:00", "cost": 0.25}
    about = [
        {"stream": "s", "step": i // 2, "candidate": None if i % 2 else 0, "question": f"{i:064x}"} for i in range(6)
    ]
    votes = [Vote(judge=judge, verdict=i % 2 == 0, **sent, **one) for i, one in enumerate(about) for judge in "ab"]
    write_votes(path, [*votes, Vote(judge="c", verdict=None, problem="The endpoint was down.", **about[0])])


def write_agents_files(folder, streams):
    """The input of an agent and the records of its decisions."""
    agent, lines, records = Agent(FakeReader(), exported(), people=in_mind()), [], []
    for stream in streams:
        for event in stream.events:
            line = {"stream": stream.id, "time": event.time, "text": event.text, "costs": {"c_fn": 4.0}}
            lines.append(line | {"person": f"user of {stream.id}"})
            item = Observation(stream.id, event, costs={"c_fn": 4.0}, person=lines[-1]["person"])
            decision = agent.observe_many([item])[0]
            records.append(decision.record())
            if decision.spoke:
                lines.append({"stream": stream.id, "offer": decision.offer, "outcome": "accepted", "time": event.time})
                records.append(agent.outcome(**lines[-1]).record())
    assert len(records) > sum(len(stream.events) for stream in streams), "some offers must have an outcome"
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("records.jsonl", "whole.records"):
        (folder / name).write_bytes(b"".join(map(encode, records)))
    known = agent.people.of("anybody").describe()
    (folder / "people.json").write_text(json.dumps(known))
    (folder / "population.json").write_text(json.dumps(agent.people.population._asdict()))
    file = sqlite3.connect(folder / "people.sqlite", isolation_level=None)
    file.executescript(f"{SCHEMA}; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;")
    PeopleStore(file, "people").restore(read_export(known, "people"))
    file.close()
    rows = [{"events": ["Opens a file.", "The tests fail."], "offer": f"Mend it in way {i}?"} for i in range(4)]
    (folder / "scenarios.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_logs(folder):
    """An acceptance log in both formats."""
    rng = np.random.default_rng(0)
    log = pa.table(
        {
            "who": [f"p{i // 8}" for i in range(40)],
            "at": 1e9 + rng.random(40),
            "took": rng.random(40) < 0.5,
            "score": rng.random(40),
            "kind": rng.choice(["code", "mail", ""], 40),
            "slow": rng.random(40) < 0.5,
        }
    )
    pq.write_table(log, folder / "log.parquet")
    pa.csv.write_csv(log, folder / "log.csv")


def read_acceptance(path):
    read_log(path, LogColumns(person="who", time="at", accepted="took", score="score"), ["kind", "slow"])


def write_published(folder):
    """What others publish, in miniature."""
    row = {"Category": "Garden", "Vision": "A hose leaks.", "Personas": ["Forgetful"], "Proactive index": "true"}
    entry = {
        "time": "2026-03-01T07:00:10+08:00",
        "location": "Mill Lane",
        "action": "Stops the alarm.",
        "label": "signal",
    }
    shown = {"timestamp": "2026-03-02T08:00:00+00:00", "duration": 60.5, "data": {"app": "Editor", "title": "notes"}}
    bucket = {"type": "currentwindow", "hostname": "den", "events": [shown]}
    for name, content in (
        ("moments/data/cab/cab_train.json", {"example-1": row, "example-2": row}),
        ("phone/src/knowu_bench/user_logs/baker.json", [entry, entry]),
        ("aw-buckets-export.json", {"buckets": {"window": bucket}}),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def read_input(path):
    with path.open("rb") as file:
        lines = InputLines(file.fileno(), str(path))
        while batch := lines.batch(16):
            for number, line in batch:
                parse_line(line, f"{path}:{number}")


def resume_records(path):
    kept = [line for line in path.with_name("whole.records").read_bytes().splitlines(keepends=True)]
    RecordsFile(path, iter(kept)).close()


def replay_records(path):
    records = [(f"{path}:{n}", parse_record(line, f"{path}:{n}")) for n, line in read_lines(path, RecordsError)]
    list(replay(records, Changes()))


def cut_streams(path):
    for shard in cut([str(path)], 2, lambda _: ()).shards:
        read_shard(shard)


READERS = {
    "agent's input": ("events.jsonl", TEXT, read_input),
    "records, to resume": ("records.jsonl", TEXT, resume_records),
    "records, to erase": ("records.jsonl", TEXT, lambda path: remove_person(path, "nobody")),
    "records, to fit people": ("records.jsonl", TEXT, lambda path: list(read_records(path))),
    "store of people": ("people.sqlite", BINARY, read_file),
    "export of people": ("people.json", TEXT, lambda path: in_mind().of("anybody").restore(read_file(path))),
    "population": (
        "population.json",
        TEXT,
        lambda path: population_from(read_object(path, "a fit", StoreError), str(path)),
    ),
    "scenarios": ("scenarios.jsonl", TEXT, read_scenarios),
    "records, to replay": ("records.jsonl", TEXT, replay_records),
    "records, as scores": ("records.jsonl", TEXT, read_scores),
    "streams": ("streams.jsonl", TEXT, read_streams),
    "streams, in shards": ("streams.jsonl", TEXT, cut_streams),
    "scores, JSON lines": ("scores.jsonl", TEXT, read_scores),
    "scores, Parquet": ("scores.parquet", BINARY, read_scores),
    "safetensors": ("model/model.safetensors", BINARY, lambda path: load_hf(path.parent, "float32")),
    "safetensors, header": ("model/model.safetensors", TEXT, lambda path: load_hf(path.parent, "float32")),
    "model config": ("model/config.json", TEXT, lambda path: load_hf(path.parent, "float32")),
    "tokenizer": ("tokenizer.json", TEXT, Tokenizer.load),
    "calibration": ("calibration.json", TEXT, read_calibration),
    "gate": ("gate.json", TEXT, Gate.load),
    "acceptance log, Parquet": ("log.parquet", BINARY, read_acceptance),
    "acceptance log, CSV": ("log.csv", TEXT, read_acceptance),
    "printed tables": ("printed.csv", TEXT, lambda path: read_table(str(path))),
    "traces": ("recorded/code_1.json", TEXT, read_trace),
    "recorded answers": ("recorded/code_1.json", TEXT, lambda path: read_recorded(path.parent)),
    "conversations": ("rows.jsonl", TEXT, read_sharegpt),
    "moments": ("moments/data/cab/cab_train.json", TEXT, lambda path: read_contextagent(path.parents[2])),
    "phone's log": ("phone/src/knowu_bench/user_logs/baker.json", TEXT, lambda path: read_knowu(path.parents[3])),
    "export of windows": ("aw-buckets-export.json", TEXT, read_activitywatch),
    "text calibrator": ("text.json", TEXT, read_text_calibrator),
    "verdicts": ("votes.jsonl", TEXT, lambda path: list(read_votes(path))),
    "run config": ("run/config.json", TEXT, lambda path: Workdir(path.parent).load_config()),
    "GGUF, header": ("tokenizer.gguf", BINARY, read_gguf_header),
    "GGUF, tokenizer": ("tokenizer.gguf", BINARY, read_gguf_tokenizer),
    "GGUF, model": ("model.gguf", BINARY, lambda path: load_gguf(path, "float32")),
}


@contextlib.contextmanager
def watched():
    """Raises if the block hangs, or has taken more memory than a small file may cost."""

    def hang(*_):
        raise AssertionError(f"not over after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far belongs to other tests: begin again
    resident = status_bytes("VmRSS")
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        taken = status_bytes("VmHWM") - resident
        assert taken < MOST_RESIDENT, f"{taken} bytes"


def status_bytes(field):
    """This process's resident memory in bytes, now (VmRSS) or at its highest (VmHWM); Linux only."""
    return 1024 * int(re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])


def check_message(message, named, case):
    assert "\n" not in message, f"{case}: {message[:500]!r}"
    assert len(message) < 2000, f"{case}: {len(message)} characters: {message[:500]!r}"
    assert named in message, f"{case}: {message[:500]!r}"


def check(read, path, seed, named):
    """Reads one damaged file."""
    tracemalloc.start()
    try:
        with watched():
            read(path)
    except (ValueError, OSError) as error:
        check_message(str(error), named, f"seed {seed}")
        return False
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MOST_MEMORY, f"seed {seed}: {peak} bytes"
    return True


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name, files):
    file, kinds, read = READERS[name]
    whole = (files / file).read_bytes()
    read(files / file)
    refused = 0
    try:
        for seed in (*KEPT.get(name, ()), *range(SEEDS)):
            (files / file).write_bytes(damaged(whole, seed, kinds))
            refused += not check(read, files / file, seed, str(files))
    finally:
        (files / file).write_bytes(whole)
    assert refused > SEEDS // 10, "damage must reach the reader"


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused_at_once(name, files):
    file, _, read = READERS[name]
    path, kept = files / file, files / "kept"
    path.rename(kept)
    accepted = []
    try:
        for kind, make in IMPOSTORS.items():
            if (name, kind) == WAITS:
                continue
            make(path)
            try:
                with watched():
                    read(path)
                accepted.append(kind)
            except (ValueError, OSError) as error:
                check_message(str(error), str(files), kind)
            finally:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                for made in (path.parent / "missing").parent.glob("missing*"):
                    made.unlink()
    finally:
        kept.rename(path)
    assert set(accepted) <= ACCEPTED.get(name, set())
