"""One endpoint prompted as ProactiveBench's agent: turn by turn what the publisher's own script sends and writes."""

import asyncio
import collections
import json
import re
import shutil
import threading
import types

import pytest
from etils import epath
from judged_streams import vote_on
from official_reference import judged_as_published, scored_as_published
from real_checkout import CHECKOUT, needs_checkout, run_script
from test_official_scores import GIVEN
from test_published import checkout

from prism_jax.labelling.judges.prompts import questions
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.proactivebench.prompted import OURS, checkout_traces, parse_answer, prompt_agent
from prism_jax.proactivebench.published import read_published
from prism_jax.proactivebench.scoring import score_official
from prism_jax.remote.cache import BudgetSpent
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.streams import Event, Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.traces import read_traces, trace_stream

FIELDS = {"Purpose": 'To say "hello".', "Thoughts": "Größer ≥ 1.", "Proactive Task": "Greet “them”.", "Response": "Hi!"}
GOOD, BROKEN = json.dumps(FIELDS), '{"Purpose": "x", '
ANSWERS = (  # to each event of a stream in turn: what its first attempts get; the last one is repeated
    [GOOD],
    [f"Sure:\n```json\n{json.dumps(FIELDS, indent=2)}\n```\nand\n```json\n1\n```"],
    [json.dumps(FIELDS | {"Proactive Task": "null", "Response": "null"})],
    [BROKEN],
    [BROKEN, "No JSON.", GOOD],
    [json.dumps({"Response": None, "Purpose": "x"})],
    ["[1, 2]"],
    [json.dumps({"More": [1, {"é": None}], **FIELDS, "Proactive Task": None}, ensure_ascii=False)],
    ["``` json\n{}\n```", "```json {} ```", "```json\n{}\n```"],
    [json.dumps({"Proactive Task": ["a", 1], "Response": ""})],
    [BROKEN, BROKEN, BROKEN, BROKEN, "{}"],
)


class Scripted:
    """Gives the answers of `ANSWERS`, and keeps the messages of every request by the first event of its stream."""

    def __init__(self):
        self.sent, self.temperatures = collections.defaultdict(list), set()
        self._lock = threading.Lock()

    def __call__(self, body):
        messages = [dict(message) for message in body["messages"]]
        self.temperatures.add(body["temperature"])
        users = [message["content"] for message in messages if message["role"] == "user"]
        with self._lock:
            sent = self.sent[re.search(r'"Event": "(.*?)"', users[0])[1]]
            attempt = sent.count(messages)
            sent.append(messages)
        answers = ANSWERS[(len(users) - 1) % len(ANSWERS)]
        return answers[min(attempt, len(answers) - 1)]


def config_of(fake, folder, budget=0.0, **changes):
    price = {"input_price": 1.0, "output_price": 1.0} if budget else {"input_price": 0.0, "output_price": 0.0}
    endpoint = EndpointConfig("m", fake.url, **(price | changes))
    return TeacherConfig(endpoint, RemoteConfig(str(folder / "cache.sqlite"), budget=budget))


def prompt(fake, folder, source, streams=None, name="NAME", dry_run=False, **changes):
    """Writes traces to a folder, and returns it with what the command says."""
    out = epath.Path(folder) / "traces_new" / name
    rows = out.with_name(f"{name}.rows.jsonl")
    return out, prompt_agent(config_of(fake, folder, **changes), source, streams, out, rows, dry_run=dry_run)


def item(time, text, answer=("old",), status=True):
    response = {"candidate_task": list(answer)}
    return {"observation": {"time": time, "event": text}, "agent_response": response, "task_status": status}


def written(out, name):
    return json.loads((out / f"{name}.json").read_text())


@pytest.fixture
def made_up(tmp_path):
    """A made-up checkout with one test stream, and two files that are none."""
    source = checkout(tmp_path / "checkout")
    folder = source / "dataset/test_data"
    folder.mkdir(parents=True)
    events = [item("1.5", 'Opens "a".'), item("Day 1", "Tippt ü.", status=False), item("3", "ada@example.org waits.")]
    (folder / "code_1.json").write_text(json.dumps(events))
    (folder / "turns_1.json").write_text("[]")
    (folder / "splits.json").write_text("{}")
    return source


def answers_of(*answers):
    """A brain that gives the answers to the successive requests, and keeps what was sent."""
    left, sent = list(answers), []

    def brain(body):
        sent.append([tuple(message.values()) for message in body["messages"]])
        return left.pop(0)

    return brain, sent


def test_the_conversation_on_a_made_up_checkout_is_the_one_written_here(made_up, tmp_path):
    brain, sent = answers_of('```json\n{"Proactive Task": "é", "Response": "null"}\n```', *[BROKEN] * 5, '{"x": 1}')
    with FakeEndpoint(brain) as fake:
        out, words = prompt(fake, tmp_path, made_up)
    system = ("system", 'Be of "help".')
    events = ('{"Time": "1.5", "Event": "Opens \\"a\\"."}', '{"Time": "Day 1", "Event": "Tippt \\u00fc."}')
    events = (*events, '{"Time": "3", "Event": "ada@example.org waits."}')
    asked = [("user", f'{{"Do": "It.", "Seen": "{event}"}}') for event in events]
    first = [system, ("user", events[0]), ("assistant", '{"Proactive Task": "\\u00e9", "Response": null}')]
    assert sent == [[system, asked[0]], *[[*first, asked[1]]] * 5, [*first, *asked[1:]]]
    assert written(out, "code_1") == [
        {**item("1.5", 'Opens "a".'), "agent_response": ["é"], "other_infomation": {"Response": None}},
        {key: value for key, value in item("Day 1", "Tippt ü.", status=False).items() if key != "agent_response"},
        {**item("3", "ada@example.org waits."), "agent_response": [], "other_infomation": {"x": 1}},
    ]
    assert [path.name for path in out.iterdir()] == ["code_1.json"]
    summary = json.loads(out.with_name("NAME.summary.json").read_text())
    assert (summary["events"], summary["offers"], summary["silences"], summary["asked"]) == (3, 1, 1, 7)
    assert list(summary["failures"].values()) == [1] and summary["temperature"] == 0.5 and not summary["redact"]
    rows = [json.loads(line) for line in out.with_name("NAME.rows.jsonl").read_text().splitlines()]
    assert [(row["event"], row["asked"], row["problem"] is None) for row in rows] == [
        (0, 1, True),
        (1, 5, False),
        (2, 1, True),
    ]
    assert summary["prompt"] == rows[0]["prompt"] and re.fullmatch("official [0-9a-f]{12}", summary["prompt"])
    assert summary["prompt"] in words[0] and "1 offers, 1 silences, 1 without an answer" in words[1]


@pytest.fixture
def real_copy(tmp_path, monkeypatch):
    """The working folder: a copy of the checkout's script and of some of its streams."""
    shutil.copytree(CHECKOUT / "eval", tmp_path / "eval", ignore=shutil.ignore_patterns("traces_new", "results"))
    names = ("code_11.json", "code_15.json", "writing_15.json", "splits.json")
    for name in names:
        (tmp_path / "dataset/test_data").mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "dataset/test_data" / name, tmp_path / "dataset/test_data")
    shutil.copy(tmp_path / "dataset/test_data/code_11.json", tmp_path / "dataset/test_data/turns_11.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_publisher(brain):
    """Runs the publisher's script in the working folder, with a stand-in for its client."""

    class Linker:
        def __init__(self, config):
            pass

        async def exec(self, model, messages, completions_kwargs):
            return brain({"model": model, "messages": messages, **completions_kwargs})

    settings = types.SimpleNamespace(request=types.SimpleNamespace(use_cache=True))
    linker = {"CodeLinker": Linker, "CodeLinkerConfig": types.SimpleNamespace(from_toml=lambda _: settings)}
    progress = {"tqdm_asyncio": types.SimpleNamespace(gather=asyncio.gather)}
    script = run_script("eval/script.py", codelinker=linker, **{"tqdm.asyncio": progress})
    asyncio.run(script["main"]("theirs"))


@needs_checkout
def test_messages_and_traces_are_those_of_the_publishers_script(real_copy, capsys):
    theirs, ours = Scripted(), Scripted()
    run_publisher(theirs)
    with FakeEndpoint(ours) as fake:
        out, _ = prompt(fake, real_copy, real_copy, concurrency=3)
    assert len(theirs.sent) == 3 and ours.sent == theirs.sent
    assert ours.temperatures == theirs.temperatures == {0.5}
    paths = sorted((real_copy / "eval/traces_new/theirs").iterdir())
    assert [path.name for path in paths] == sorted(path.name for path in out.iterdir())
    failed = 0
    for path in paths:
        for number, (found, expected) in enumerate(
            zip(written(out, path.stem), json.loads(path.read_text()), strict=True)
        ):
            if number % len(ANSWERS) in (3, 6):  # the script leaves the file's own offers there
                assert expected.pop("agent_response").keys() == {"candidate_task"}
                failed += 1
            assert found == expected
            assert list(found) == list(expected)
    assert failed == 11


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "broken JSON"),
        ("```json\n{}", "without a whole block"),
        ("[]", "type list"),
        ("null", "type NoneType"),
        ('{"Purpose": NaN}', "no file can hold"),
        ('{"Purpose": "\\ud800"}', "no file can hold"),
        ("[" * 100_000, "no file can hold"),
    ],
)
def test_what_is_no_answer_says_why(text, expected):
    with pytest.raises(ValueError, match=expected):
        parse_answer(text)


def stream_of(number, events=4):
    texts = [f"stream {number} event {i}" for i in range(events)]
    return Stream(id=f"code_{number}", events=tuple(Event(time=60.0 * i, text=text) for i, text in enumerate(texts)))


@pytest.fixture
def users(tmp_path):
    write_streams(tmp_path / "streams.jsonl", [stream_of(number) for number in range(3)])
    return tmp_path / "streams.jsonl"


def test_without_a_checkout_the_prompt_is_ours(users, tmp_path):
    brain = Scripted()
    with FakeEndpoint(brain) as fake:
        out, words = prompt(fake, tmp_path, None, users)
    assert {messages[0]["content"] for sent in brain.sent.values() for messages in sent} == {OURS.system}
    assert '{"Time": "180.000", "Event": "stream 0 event 3"}' in brain.sent["stream 0 event 0"][-1][-1]["content"]
    assert "prompt ours" in words[0] and set(read_traces(out)) == {"code_0", "code_1", "code_2"}


def test_a_run_that_stopped_resumes_and_writes_no_half_folder(users, tmp_path):
    with FakeEndpoint(Scripted()) as fake:
        with pytest.raises(BudgetSpent):
            prompt(fake, tmp_path, None, users, budget=0.008, max_tokens=500, concurrency=1)
        assert not list((tmp_path / "traces_new").iterdir()) and 0 < fake.billed.total() < 24
        out, _ = prompt(fake, tmp_path, None, users, budget=1.0, max_tokens=500)
        assert fake.billed.total() == fake.received.total() == 3 * (1 + 1 + 1 + 5), "none is asked twice"
        again, words = prompt(fake, tmp_path, None, users, name="AGAIN", budget=1.0, max_tokens=500)
        assert fake.received.total() == 24 and "24 cached" in "".join(words)
        assert [path.read_text() for path in sorted(again.iterdir())] == [
            path.read_text() for path in sorted(out.iterdir())
        ]
        with pytest.raises(FileExistsError):
            prompt(fake, tmp_path, None, users, budget=1.0)


def test_what_no_server_answers_is_not_asked_five_times(users, tmp_path):
    with FakeEndpoint(Scripted(), Faults(status=400)) as fake:
        with pytest.raises(RuntimeError, match="found no answer to any of 12 requests"):
            prompt(fake, tmp_path, None, users)
        assert fake.received.total() == 12 and not list((tmp_path / "traces_new").iterdir())


def test_a_dry_run_counts_growing_histories_of_the_longest_answers(users, tmp_path):
    with FakeEndpoint(Scripted()) as fake:
        _, words = prompt(fake, tmp_path, None, users, dry_run=True, budget=1.0, max_tokens=100)
        assert not fake.received and not (tmp_path / "traces_new").exists()
    tokens = int(re.search(r"([\d,]+) prompt tokens", words[1])[1].replace(",", ""))
    histories = 3 * 100 * (0 + 1 + 2 + 3)
    assert "12 requests" in words[0] and histories < tokens < histories + 12 * (len(OURS.system) + 700) / 4
    assert "100 tokens" in "".join(words) and "prompt ours" in "".join(words)


def test_a_stream_that_names_no_file_is_refused_before_anything_is_sent(tmp_path):
    write_streams(tmp_path / "in.jsonl", [Stream(id="a/b", events=(Event(time=0.0, text="x"),))])
    with FakeEndpoint(Scripted()) as fake, pytest.raises(ValueError, match="found no file name"):
        prompt(fake, tmp_path, None, tmp_path / "in.jsonl")
    assert not fake.received


def test_a_folder_without_streams_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected ProactiveBench's test streams"):
        checkout_traces(tmp_path)


def scored(folder, name, accepts, **options):
    """The rows of a model's scores in both modes, by made-up verdicts."""
    traces = read_traces(folder / name)
    asked = [one for stream, trace in traces.items() for one in questions(trace_stream(stream, trace), 40)]
    write_votes(folder / f"{name}.votes.jsonl", [vote_on(one, "j", accepts(one)) for one in asked])
    given = GIVEN | {"votes": str(folder / f"{name}.votes.jsonl"), "judges": ["j"]}
    score_official({**given, "traces": str(folder / name), "workdir": str(folder / "scores"), **options})
    return [read_published(folder / "scores" / mode / f"{name}.csv") for mode in ("official", "fixed")]


def test_a_trace_of_ours_is_judged_in_both_modes(users, tmp_path):
    with FakeEndpoint(Scripted()) as fake:
        out, _ = prompt(fake, tmp_path, None, users)
    folder = tmp_path / "traces_new"
    ((official,), (fixed,)) = scored(folder, "NAME", lambda one: one.candidate is None or one.stream == "code_1")
    judged = []
    for name in ("code_0", "code_1", "code_2"):
        judged += judged_as_published(written(out, name), lambda _, one, name=name: one is None or name == "code_1")
    rates, counts = scored_as_published(judged)
    assert (counts, sum(counts)) == ((2, 4, 3, 0), 9), "the failed event of each stream was not judged"
    assert official.rates == rates
    assert fixed.rates["Precision"] == 2 / 6 and fixed.rates["Recall"] == 1.0


@needs_checkout
def test_the_publishers_scorer_reads_a_judged_trace_of_ours(users, tmp_path):
    with FakeEndpoint(Scripted()) as fake:
        out, _ = prompt(fake, tmp_path, None, users)
    ((official,), _) = scored(tmp_path / "traces_new", "NAME", lambda one: one.stream != "code_0")
    judged = []
    for name in ("code_0", "code_1", "code_2"):
        judged += judged_as_published(written(out, name), lambda *_, name=name: name != "code_0")
    theirs = run_script("eval/calculate_agent_performance.py")["calculate_scores"](judged)
    assert theirs == {**official.rates, "Total Events": 12}
