"""The command as a user runs it, on a reader without a model: records out, bad lines, kill -9, restart, replay."""

import json
import os
import pathlib
import subprocess
import sys

import forked
import pytest
from batches import in_mind
from exported_folder import write
from fake_reader import MAPS, FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.input_loop import InputLoop
from prism_jax.agent.lines import InputLines, LineError
from prism_jax.agent.records_file import RecordsFile
from prism_jax.agent.state.kept import store_of_one
from prism_jax.agent.state.partition import Partition
from prism_jax.agent.state.store import StateStore
from prism_jax.decision.person import Population
from prism_jax.streams import Event

COMMAND = pathlib.Path(__file__).parent / "fake_agent.py"
CANARIES = ("canary@example.com", "4111 1111 1111 1111", "sk-canary0123456789abcdef", "/home/canary/x.txt")


def lines_of(count, streams=4):
    """Events of interleaved streams; an outcome of every offer of the first, two events after it."""
    agent, made = Agent(FakeReader(), exported()), []
    for n in range(count):
        event = {"stream": f"s{n % streams}", "time": float(n), "text": f"event {n}"}
        yield event
        decision = agent.observe(event["stream"], Event(time=event["time"], text=event["text"]))
        if decision.spoke and n % streams == 0:
            made.append((n, decision.offer))
        if made and made[0][0] == n - 2:
            yield {"stream": "s0", "offer": made.pop(0)[1], "outcome": "accepted", "time": float(n)}


def encoded(lines):
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture
def files(tmp_path):
    model, source = write(tmp_path / "model"), tmp_path / "in.jsonl"
    source.write_bytes(encoded(lines_of(60)))
    return model, source, tmp_path / "records.jsonl"


def told(data):
    """Records without their seconds; every line is whole."""
    assert data == b"" or data.endswith(b"\n")
    records = [json.loads(line) for line in data.splitlines()]
    for record in records:
        record.pop("seconds", None)
    return records


def plain(data):
    """The records of `told` without what a state has beside them."""
    return [{key: value for key, value in record.items() if key != "fingerprints"} for record in told(data)]


def test_each_record_leaves_as_soon_as_its_line_has_come_and_nothing_of_training_is_loaded(root, files, tmp_path):
    model, source, _ = files
    listing, lines, records = tmp_path / "modules.json", source.read_bytes().splitlines(keepends=True), []
    command = [sys.executable, str(COMMAND), f"modules={listing}", f"--model={model}", "--input=-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)}
    with subprocess.Popen(command, cwd=root, env=environment, **pipes) as process:
        for line in lines:
            process.stdin.write(line)
            process.stdin.flush()
            records += told(process.stdout.readline())  # would wait for ever otherwise
        process.stdin.close()
        said = process.stderr.read().decode()
        assert process.wait() == 0 and process.stdout.read() == b"", said
    lines = [json.loads(line) for line in lines]
    assert [(r["stream"], r["time"], r["kind"]) for r in records] == [
        (line["stream"], line["time"], "outcome" if "offer" in line else "decision") for line in lines
    ]
    assert f"{len(lines) - sum('offer' in line for line in lines)} events, " in said
    for part in ("mean", "P50", "P95", "P99", "seconds, read", "tokens, think", "3 programs compiled"):
        assert part in said
    loaded = set(json.loads(listing.read_text()))
    assert "prism_jax.agent.input_loop" in loaded
    assert not {"orbax", "grain", "optax", "flax", "transformers", "tensorflow", "pyarrow"} & loaded
    assert not [name for name in loaded if name.startswith(("prism_jax.training", "prism_jax.evaluation"))]


@pytest.fixture
def settings(files, tmp_path):
    """The flags of an agent with a state."""
    model, source, _ = files
    return dict(model=model, input=source, state=tmp_path / "state")


def test_the_first_bad_line_stops_after_the_records_before_it(serving, files, settings):
    model, source, records = files
    lines = source.read_bytes().splitlines(keepends=True)
    source.write_bytes(b"".join([*lines[:20], b'{"stream": "s0", "time": NaN, "text": "x"}\n', *lines[20:]]))
    settings |= dict(records=records)
    error, _, _ = serving(**settings)
    assert error == f"{source}:21: time: found the number nan, expected a number of seconds"
    assert len(told(records.read_bytes())) == 20
    source.write_bytes(b"".join(lines))  # mended: the rest follows
    assert serving(**settings)[0] is None
    assert plain(records.read_bytes()) == plain(serving(model=model, input=source)[1])


def service(tmp_path, content, skip_bad, batch=256, reader=FakeReader, people=None):
    """Runs a service in this process; the records that it wrote, and what it reported."""
    path = tmp_path / "in"
    path.write_bytes(content)
    written, said = [], []
    write, agent = lambda line: written.append(json.loads(line)), Agent(reader(), exported(), people=people)
    one = InputLoop(agent, write, "in", skip_bad=skip_bad, report=said.append, batch=batch)
    with path.open("rb") as file:
        try:
            one.answer(InputLines(file.fileno()))
        except LineError as error:
            said.append(str(error))
    assert one.skipped == sum(line.startswith("skipped: ") for line in said)
    return written, said


BAD_LINES = (
    b'{"stream": "s1", "time": -5, "text": "back"}',
    b'{"stream": "s1", "offer": "s1/99", "outcome": "accepted", "time": 1}',
    b'{"stream": "s1", "time": 1, "text": "a\\udc00"}',
    b'{"stream": "s1", "time": 1e3, "text": "x", "costs": {"c_fa": -1}}',
    b"{",
)


@pytest.mark.parametrize("batch", [1, 5, 256])
@pytest.mark.parametrize("place", [1, 9, 37])
def test_bad_lines_are_skipped_where_asked_and_change_nothing_else(tmp_path, place, batch):
    lines = encoded(lines_of(50)).splitlines(keepends=True)
    bad = b"".join(line + b"\n" for line in BAD_LINES)
    content = b"".join([*lines[: place + 4], bad, *lines[place + 4 :]])
    clean, _ = service(tmp_path, b"".join(lines), skip_bad=False, batch=batch)
    found, said = service(tmp_path, content, skip_bad=True, batch=batch)
    strip = [[{k: v for k, v in r.items() if k != "seconds"} for r in records] for records in (clean, found)]
    assert strip[0] == strip[1]
    assert [message.split(":")[0:3] for message in said] == [["skipped", " in", str(place + 5 + i)] for i in range(5)]
    stopped, (message,) = service(tmp_path, content, skip_bad=False, batch=batch)
    assert len(stopped) == place + 4 and message.startswith(f"in:{place + 5}: ")


class Limited(FakeReader):
    """Refuses long events, as a model whose context they do not fit."""

    def observe(self, items):
        for stream, event, _ in items:
            if "long" in event.text:
                raise ValueError(f"stream {stream!r}: found 9000 tokens, expected at most 2048")
        return super().observe(items)


def test_an_event_that_the_reader_refuses_stops_nobody_else(tmp_path):
    rows = [{"stream": f"s{i % 3}", "time": i, "text": "long" if i in (4, 5, 6) else f"{i}"} for i in range(12)]
    written, said = service(tmp_path, encoded(rows), skip_bad=True, reader=Limited)
    assert [record["time"] for record in written] == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert [record["event"] for record in written if record["stream"] == "s0"] == [0, 1, 2]
    assert [message.split(": ")[1] for message in said] == ["in:5", "in:6", "in:7"]


def test_no_canary_reaches_records_or_messages(serving, files, settings):
    model, source, records = files
    canary = " ".join(CANARIES)
    rows = [
        {"stream": "s", "time": 0, "text": canary, "candidates": [f"Write {canary}", None]},
        {"stream": "s", "time": "x " + canary, "text": "x"},
        {"stream": "s", "time": 0, "text": "x", CANARIES[0]: 1},
        {"stream": "s", "offer": canary, "outcome": "accepted", "time": 1},
        {"stream": "s", "time": 0, "text": "x", "candidates": [canary, canary]},
        {"stream": "s", "time": 0, "text": "x", "costs": {"policy": canary}},
        {"stream": canary, "time": 0, "text": "x", "costs": canary},
    ]
    source.write_bytes(encoded(rows) + f'{{"a": 1, "a": "{canary}"}}\n{{{canary}'.encode())
    error, out, err = serving(**settings, records=records, keep_texts=True, critical_pattern=[".*"], skip_bad=True)
    assert error is None and err.count("skipped: ") == 8
    shown = records.read_bytes() + out + err.encode()
    assert not [one for one in CANARIES if one.encode() in shown]
    assert b"Write [e-mail] [card] [key] [home]" in shown
    error, out, err = serving(model=model, input=source)
    assert error and not [one for one in CANARIES if one in error + out.decode() + err]
    kept = serving(model=model, input=source, redact=False, skip_bad=True)[1]
    assert CANARIES[0].encode() in kept


def states(folder):
    """The bytes of all files of a state."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class Killed(BaseException):
    """Stands for the death of the process."""


def dies(method, count, *, after):
    """A method that is the last thing of the process when it is called so many times: it is done `after` it, or not."""
    left = [count]

    def called(self, *arguments):
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Killed
        method(self, *arguments)
        if left[0] == 0:
            raise Killed

    return called


@pytest.mark.parametrize("kept", [True, False])
def test_an_agent_that_dies_at_any_commit_or_record_goes_on_with_the_same_input(
    serving, files, tmp_path, monkeypatch, kept
):
    """Each line is decided once, exploration and budgets go on, and the file gets what it lacks; with texts or none."""
    model, source, records = files
    settings = dict(model=model, input=source, explore=0.3, explore_loss=0.5, skip_bad=True, batch=7, keep_texts=kept)
    settings |= dict(most_offers=2, offers_window=20.0, most_thoughts=3, thoughts_window=30.0)
    whole = serving(**settings)[1]
    settings |= dict(records=records, state=tmp_path / "state")
    commit, write, died = Partition.commit, RecordsFile.write, 0
    for i in range(9):
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "commit", dies(commit, 3 + i % 3, after=i % 2 == 0) if i % 3 else commit)
            patch.setattr(RecordsFile, "write", write if i % 3 else dies(write, 4, after=i % 2 == 0))
            patch.setattr(Partition, "close", lambda self: self._file.close())  # without the end of the log
            try:
                serving(**settings)
            except Killed:
                died += 1
        content = records.read_bytes()
        records.write_bytes(content if i % 4 else content[:-13])
    error, out, _ = serving(**settings)
    assert (error, out) == (None, b"") and died > 5
    assert plain(records.read_bytes()) == plain(whole)
    assert {record["kind"] for record in told(whole)} == {"decision", "outcome"}
    assert (b"event 8" in states(tmp_path / "state")) == kept
    assert "no events" in serving(**settings)[2]
    assert plain(records.read_bytes()) == plain(whole)


def test_a_state_goes_on_behind_the_lines_that_it_has_and_its_file_gets_what_it_lacks(
    serving, files, settings, tmp_path
):
    model, source, records = files
    lines = source.read_bytes().splitlines(keepends=True)
    whole = serving(model=model, input=source)[1]
    source.write_bytes(b"".join(lines[:30])[:-1])  # the last line has no end yet
    assert plain(serving(**settings)[1]) == plain(whole)[:30]
    source.write_bytes(b"".join(lines))
    assert plain(serving(**settings, records=records)[1]) == []
    assert plain(records.read_bytes()) == plain(whole)
    last = records.read_bytes().splitlines(keepends=True)[-1]
    records.write_bytes(records.read_bytes()[: 13 - len(last)])
    error, _, said = serving(**settings, records=records)
    assert error is None and "removed the last 13 bytes" in said
    other = tmp_path / "other.jsonl"
    assert serving(**settings, records=other)[0] is None and other.read_bytes() == records.read_bytes()
    records.write_bytes(records.read_bytes() + other.read_bytes()[:-1].rsplit(b"\n", 1)[1] + b"\n")
    error, _, _ = serving(**settings, records=records)
    assert error.startswith(f"{records}:{len(lines) + 1}: found a record behind the {len(lines)} that the state has")


def test_a_file_is_known_to_the_state_before_anybody_is_in_it(serving, files, settings, tmp_path, monkeypatch):
    _, source, records = files
    source.write_bytes(encoded(with_people(lines_of(9))))
    assert serving(**settings)[0] is None
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RecordsFile, "write", dies(RecordsFile.write, 1, after=True))
        serving(**settings, records=records)
    with store_of_one(tmp_path / "state") as store:
        assert b"person of s0" in records.read_bytes()
        store.forget_person("person of s0")
    assert b"person of s0" not in records.read_bytes()
    foreign = tmp_path / "notes.txt"
    foreign.write_bytes(b"one\ntwo\n")
    assert "found another record" in serving(**settings, records=foreign)[0]
    with store_of_one(tmp_path / "state") as store:
        assert store.partition(0).people.records() == [str(records)]


@pytest.mark.parametrize("kept", [True, False])
def test_standard_input_goes_on_where_the_caller_does(serving, files, tmp_path, monkeypatch, kept):
    """With texts, the streams go on; without, they cannot be read again, and the message says so."""
    model, source, _ = files
    lines = source.read_bytes().splitlines(keepends=True)
    whole, found = serving(model=model, input=source, keep_texts=kept)[1], []
    for part in (lines[:30], lines[30:]):
        (tmp_path / "part").write_bytes(b"".join(part))
        with (tmp_path / "part").open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            found.append(serving(model=model, input="-", state=tmp_path / "state", keep_texts=kept))
    if kept:
        assert plain(b"".join(out for _, out, _ in found)) == plain(whole)
    else:
        assert "found no texts of its events, from which it would be read again" in found[1][0]


def test_refused_lines_at_the_end_are_reported_once(serving, files, settings):
    _, source, _ = files
    source.write_bytes(source.read_bytes() + b"no event\n")
    assert f"skipped: {source}:" in serving(**settings, skip_bad=True)[2]
    assert "skipped: " not in serving(**settings, skip_bad=True)[2]


@pytest.mark.parametrize("change", [(b"event 8", b"event 9"), (b"event 8", b"event eight"), (b"}", b"} ")])
def test_another_input_than_the_one_that_was_decided_on_is_refused(serving, files, settings, change):
    _, source, records = files
    assert serving(**settings, records=records)[0] is None
    before, count = records.read_bytes(), source.read_bytes().count(b"\n")
    source.write_bytes(source.read_bytes().replace(*change))
    error, _, _ = serving(**settings, records=records)
    assert error.startswith(f"{source}: found other lines than the {count} that were decided on")
    assert records.read_bytes() == before


def test_the_state_of_a_server_is_not_an_agents(serving, settings, tmp_path):
    StateStore(tmp_path / "state" / "tenants" / "default").close()
    assert "found 256 partitions, expected one" in serving(**settings)[0]


def test_replay_of_a_file_repeats_it_and_writes_a_whole_file_or_none(serving, files, settings, tmp_path):
    _, _, records = files
    serving(**settings, records=records)
    error, out, err = serving(replay=records)
    assert (error, out) == (None, records.read_bytes()) and ", 0 changed, " in err
    other = tmp_path / "other.jsonl"
    assert serving(replay=records, records=other, policy="never")[0] is None
    assert {record["spoke"] for record in told(other.read_bytes())} == {False}
    assert "found something there" in serving(replay=records, records=other)[0]
    error, _, _ = serving(replay=records, records=tmp_path / "wide.jsonl", margin=1.0)
    assert error.startswith(f"{records}:") and not (tmp_path / "wide.jsonl").exists()
    fit = {"temperature": 1.0, "base_rate": 0.5, "count": 9, "effective_count": 9.0, "offer_rate": None}
    calibration = tmp_path / "calibration.json"
    calibration.write_text(json.dumps(dict.fromkeys(MAPS, fit)))
    error, out, _ = serving(replay=records, calibration=calibration, margin=0.0)
    assert error is None
    assert {r["p_need"] - r["fast"]["raw"]["p_need"] for r in told(out) if r["kind"] == "decision"} == {0.0}


ASKED = {"decisions": "http://127.0.0.1:9", "decision_model": "m"}
REFUSED = {
    "no such model": (dict(model="/no/such"), "/no/such/prism.json: no such file"),
    "another export": (dict(expect_digest="0" * 64), "/digests.json: found the SHA-256 "),
    "no such input": (dict(input="/no/such"), "/no/such"),
    "no such log": (dict(replay="/no/such"), "/no/such: no such file, expected in --replay the records"),
    "records without a state": (dict(records="/no/such"), "--records: found it without --state, expected the folder"),
    "a bad cost": (dict(c_fa=-1.0), "c_fa: found -1.0, expected a cost"),
    "a bad probability": (dict(explore=0.9), "--explore, --explore_loss, --seed: epsilon: found 0.9"),
    "a bad budget": (dict(most_offers=-1), "--most_offers, --offers_window: most: found -1"),
    "a deadline for nobody": (dict(deadline=3.0), "--deadline: found it with neither --engine nor --decisions, "),
    "two models": (ASKED, "--model: found it with --decisions, expected it without"),
    "no costs": (ASKED | {"model": None}, "--c_fa: found no cost, expected it, or --gate with a file that has it"),
    "a bad pattern": (dict(critical_pattern=["("]), "expected a regular expression"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_be_used_are_refused_by_name(serving, files, case):
    model, source, _ = files
    given, message = REFUSED[case]
    error, out, _ = serving(**{"model": model, "input": source, **given})
    assert message in error and out == b""


@pytest.mark.parametrize("name", ["input", "answers"])
def test_records_are_written_over_no_other_file(serving, files, tmp_path, name):
    _, source, _ = files
    given = {"input": source, **ASKED, "answers": str(tmp_path / "answers")}
    error, out, _ = serving(**given, records=str(given[name]), state=str(tmp_path / "state"))
    assert error.startswith("--records: found") and error.endswith(f"the file of --{name}, expected another one")
    assert out == b"" and not (tmp_path / "answers").exists()


FLAGS = {
    "no model": (("--input=-",), "--model: found none, expected it (or --replay=RECORDS)"),
    "no input": (("--model={model}",), "--input: found none"),
    "an empty model": (("--model= ", "--input=-"), "--model: found an empty value"),
    "a stray argument": (("--model={model}", "stray"), "found argument 'stray'"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_bad_flags_are_one_line(files, case):
    model, _, _ = files
    arguments, message = FLAGS[case]
    given = (argument.format(model=model) for argument in arguments)
    done = forked.run(COMMAND, *given)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and message in last and "Traceback" not in done.stderr


def with_people(lines):
    """The same lines, each stream with a person; every outcome is a refusal, so that an alarm has a reason."""
    for line in lines:
        yield {**line, "outcome": "ignored"} if "offer" in line else {**line, "person": f"person of {line['stream']}"}


def test_people_are_learnt_from_once_and_named_in_no_message(serving, files, tmp_path):
    model, source, records = files
    rows = list(with_people(lines_of(60)))
    store, other = tmp_path / "state", tmp_path / "other"
    settings = dict(model=model, input=source, policy="always")
    source.write_bytes(encoded(rows))
    error, out, said = serving(**settings, state=other)
    assert error is None
    for count in (30, len(rows)):  # stops, and goes on with the input
        source.write_bytes(encoded(rows[:count]))
        assert serving(**settings, state=store, records=records)[0] is None
    assert told(records.read_bytes()) == told(out)
    with store_of_one(store) as found, store_of_one(other) as expected:
        people = found.partition(0).people
        assert people.records() == [str(records)]
        assert list(people) == list(expected.partition(0).people)
        assert [one.name for one in people] == ["person of s0"]  # nobody else got an outcome
        assert people.person("person of s0").belief.mean < 0
    assert "1 people known; 0 alarms have rung; log of the alarms' product " in said
    assert "person of" not in said


def test_a_ringing_alarm_is_reported_by_number_once(tmp_path):
    population, rows, n = Population(1.0, 2.0, 0.05, 0.0), [], 0
    watcher = Agent(FakeReader(), exported(), people=in_mind(None, population))
    while not watcher.people.rang:
        event = {"stream": "s", "time": float(n), "text": f"event {n}", "person": "ann"}
        rows.append(event)
        found = watcher.observe("s", Event(time=event["time"], text=event["text"]), person="ann")
        if found.spoke:
            rows.append({"stream": "s", "offer": found.offer, "outcome": "ignored", "time": float(n)})
            watcher.outcome("s", found.offer, "ignored", float(n))
        n += 1
        assert n < 500
    content = encoded([*rows, rows[0] | {"time": 1e6}])
    _, (message,) = service(tmp_path, content, skip_bad=False, people=in_mind(None, population))
    assert message.startswith("alarm: the answers of person 1 no longer agree with the probabilities stated before")


def test_flags_about_people_need_a_store_and_good_values(serving, settings, tmp_path):
    without = settings | dict(state=None)
    assert serving(**without, recalibrate=True)[0].startswith("--recalibrate: found it without --state")
    assert serving(**settings, alarm=0.9)[0].startswith("--alarm: found 0.9, expected a probability")
    population = tmp_path / "population.json"
    population.write_text('{"scale": 1.0, "bias": 0.0, "spread": -1.0, "drift": 0.0}')
    message = f"{population}: spread: found -1.0, expected a number from 1e-09 to 100"
    assert serving(**settings, population=population)[0] == message
    assert not (tmp_path / "state").exists()
