"""Serves an exported model on JSON lines, or replays its records: the work of `agent`."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags
from etils import epath

from prism_jax.agent import loading
from prism_jax.agent.asking import AskingReader
from prism_jax.agent.decider import Decider
from prism_jax.agent.exported import Exported, read_exported, with_gate
from prism_jax.agent.input_loop import InputLoop
from prism_jax.agent.lines import InputLines
from prism_jax.agent.reader import Reader
from prism_jax.agent.records import encode
from prism_jax.agent.records_file import RecordsError, RecordsFile, parse_record, write_whole
from prism_jax.agent.replay import Changes, replay
from prism_jax.agent.settings import POINT_FIELDS, AgentSettings, Budget, Critical, Exploration, PeopleSettings, Terms
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.agent.state.store import StateStore
from prism_jax.decision.operating_point import SLOW_TRIGGERS
from prism_jax.decision.person import Population
from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.gate import Gate
from prism_jax.people.exports import StoreError, population_from
from prism_jax.runtime.command import check_together, say
from prism_jax.runtime.files import check_absent, check_outputs, read_lines, read_object, write_bytes

if TYPE_CHECKING:
    from prism_jax.agent.decision_reader import DecisionReader

OPTIONS = ("dtype", "compute", "context", "memory", "keep", "compilation_cache")
ENGINE_OPTIONS = ("engine", "key", "deadline", "context", "keep")
DECISION_OPTIONS = (
    "decision_model",
    "questions",
    "window",
    "answers",
    "budget",
    "input_price",
    "output_price",
    "prompt_cache",
)
DEFAULT_ANSWERS = "remote.sqlite"
WHERE = dict.fromkeys(("deadline", "key", "gate"), "with --engine or --decisions") | {
    "jitter": "with --engine",
    **dict.fromkeys(DECISION_OPTIONS, "with --decisions"),
}
SETTINGS = (
    *("c_fa", "c_fn", "margin", "fixed_threshold", "price", "policy", "trigger", "most_offers", "offers_window"),
    *("most_thoughts", "thoughts_window", "critical_text", "critical_pattern", "explore", "explore_loss", "seed"),
    *("optimism", "alarm", "redact", "keep_texts"),
)
"""The flags of `define_settings_flags`."""


def define_asking_flags() -> None:
    """Defines the flags that name an engine or a decision model, and say how it is asked."""
    flags.DEFINE_string(
        "engine",
        None,
        "llamacpp:URL, vllm:URL or sglang:URL: the engine that serves the model; of --model only "
        "prism.json and the tokenizer are then read (docs/decision_models.md).",
    )
    flags.DEFINE_string(
        "decisions",
        None,
        "Base URL of a decision model (POST URL/decisions; systemone:URL for POST URL/systemone), in place of --model.",
    )
    flags.DEFINE_string("decision_model", None, "With --decisions: name of the model there.")
    flags.DEFINE_string(
        "questions",
        None,
        "With --decisions: JSON file with the words of the questions, or slots for a `python -m prism_jax serve`.",
    )
    flags.DEFINE_integer("window", None, "With --decisions: newest events of a stream that are sent.", lower_bound=1)
    flags.DEFINE_bool("prompt_cache", None, "With --decisions: name the stream, by a hash, for the cache of prompts.")
    flags.DEFINE_string("answers", None, "With --decisions: SQLite file of answers and spending.")
    flags.DEFINE_float("budget", None, "With --decisions: most USD that this file may ever record as spent.", 0.0)
    for name in ("input", "output"):
        flags.DEFINE_float(f"{name}_price", None, f"With --decisions: USD per million {name} tokens.", 0.0)
    flags.DEFINE_string("key", None, "NAME of the environment variable with the API key of engine or decision model.")
    flags.DEFINE_float("deadline", None, "Seconds after which an event without an answer from there is silence.", 0.001)


def define_reading_flags() -> None:
    """Defines the flags of a reader of streams."""
    flags.DEFINE_integer("context", None, "Most tokens up to the end of one decision.")
    flags.DEFINE_integer("memory", None, "Bytes for the trunks of live streams.")
    flags.DEFINE_float("keep", None, "Largest share of the context in use after old events of a stream were dropped.")


def define_settings_flags() -> None:
    """Defines the flags of what a deployment may choose, which `settings_from` reads."""
    for name in ("c_fa", "c_fn", "margin", "fixed_threshold", "price"):
        flags.DEFINE_float(name, None, f"{name} of the operating point, instead of the exported one.")
    flags.DEFINE_enum("policy", None, DEPLOYABLE, "Policy, instead of the exported one.")
    flags.DEFINE_enum("trigger", None, SLOW_TRIGGERS, "What triggers the slow pass, instead of the exported trigger.")
    for kind, what in (("offers", "Interruption"), ("thoughts", "Slow")):
        flags.DEFINE_integer(f"most_{kind}", None, f"{what} budget of a stream: most {kind} in a window.")
        flags.DEFINE_float(f"{kind}_window", 3600.0, f"Window of the budget of {kind}, in seconds.")
    flags.DEFINE_multi_string("critical_text", [], "Text of an event that always leads to an offer.")
    flags.DEFINE_multi_string("critical_pattern", [], "Regular expression for the whole text of such an event.")
    flags.DEFINE_float("explore", None, "Probability of the other decision near the boundary; by default off.")
    flags.DEFINE_float("explore_loss", 0.1, "Largest expected loss of such a decision, in the unit of the costs.")
    flags.DEFINE_integer("seed", 0, "Seed of the exploration.")
    flags.DEFINE_bool("optimism", True, "Count doubt about a person in favour of an offer where silence is cheap.")
    flags.DEFINE_float("alarm", 0.05, "Probability that an alarm ever rings without reason; 0 watches nobody.")
    flags.DEFINE_bool("redact", True, "Cut personal data and secrets from the texts of records.")
    flags.DEFINE_bool("keep_texts", False, "Keep the events' texts in the records.")


def serve(options: Mapping[str, Any]) -> None:
    """Decides on every event of the input, as the flags of `agent` say.

    `model` is an exported directory, or the workdir of a trained run, which is exported for the time being. ValueError
    and OSError have a message of one line.
    """
    _check_source(options)
    with contextlib.ExitStack() as stack:
        load, exported = model_of(options, stack)
        if options["jitter"]:
            from prism_jax.agent.engine_reader import EngineReader

            engine = load()
            assert isinstance(engine, EngineReader), "the flag goes with --engine alone"
            engine.warm_up()
            say(engine.jitter())
            return
        settings = settings_from(options, Terms(exported.point), point_changes(options))
        if options["state"] is None:
            _run(Decider(load(), exported, settings), options, _print)
            return
        store = stack.enter_context(store_of_one(options["state"], population_of(options)))
        records = None if options["records"] is None else _records(store, options["records"], stack)
        agent = KeptAgent(load(), exported, store, settings, texts=settings.keep_texts)
        _run(agent, options, records or _print, store)


def _records(store: StateStore, path: str, stack: contextlib.ExitStack) -> Callable[[bytes], None]:
    """What writes to the file of --records, which has all records of the state."""
    partition = store.partition(0)

    def note() -> None:  # before anybody is in the file, so that a deletion reaches it whenever this process dies
        with partition.transaction():
            partition.people.note_records(path)

    records = stack.enter_context(contextlib.closing(RecordsFile(path, partition.lines(), note)))
    if records.torn:
        say(f"removed the last {records.torn} bytes of {path}: a record that was cut")
    return records.write


def model_of(
    options: Mapping[str, Any], stack: contextlib.ExitStack, *, offers: int | None = None
) -> tuple[Callable[[], Reader], Exported]:
    """What loads the reader of --model, --engine or --decisions, which `stack` closes, and its calibration.

    `offers` is how many tokens of the context a model that is read here leaves free for offers.
    """
    reader: AskingReader
    if options["decisions"] is not None:
        reader, exported = decision_model(options, gate_of(options), stack)
    else:
        model = stack.enter_context(loading.exported_model(options["model"]))
        exported, settings = read_exported(model, options["expect_digest"]), _loading(options)
        gated = with_gate(exported, gate_of(options)) if options["gate"] else exported
        if options["engine"] is None:
            return lambda: loading.load_reader(model, exported, offers=offers, **settings), gated
        reader, exported = loading.load_engine(model, exported, **settings), gated
    stack.callback(reader.close)
    return lambda: reader, exported


def _check_source(options: Mapping[str, Any]) -> None:
    """Raises ValueError, naming the flag, unless one model is named with flags that go with it."""
    decisions, engine = options["decisions"] is not None, options["engine"] is not None
    for name in ("decision_model",) if decisions else ("model",):
        if options[name] is None:
            other = "with --decisions" if decisions else "(or --replay=RECORDS)"
            raise ValueError(f"--{name}: found none, expected it {other}")
    check_together(
        "records without state: the folder of the agent's state, whose records it gets; without a state they go to "
        "standard output",
        options=options,
    )
    if options["input"] is None and not options["jitter"]:
        raise ValueError("--input: found none, expected it (or --replay=RECORDS)")
    check_goes_with(options, {"gate": decisions or engine, "jitter": engine})
    answers = (options["answers"] or DEFAULT_ANSWERS) if decisions else None
    inputs = {name: options[name] for name in ("input", "population", "gate", "questions")}
    check_outputs({"records": options["records"]}, inputs | {"answers": answers})


def check_goes_with(options: Mapping[str, Any], more: Mapping[str, bool]) -> None:
    """Raises ValueError, naming the flag, for one that says nothing of the model that is named.

    `more` has flags of one command alone, and whether each goes with the others.
    """
    decisions, engine = options["decisions"] is not None, options["engine"] is not None
    allowed = {
        "model": not decisions,
        "engine": not decisions,
        **dict.fromkeys(("dtype", "compute", "memory", "compilation_cache"), not (decisions or engine)),
        **dict.fromkeys(("context", "keep", "expect_digest"), not decisions),
        **dict.fromkeys(("deadline", "key"), decisions or engine),
        **dict.fromkeys(DECISION_OPTIONS, decisions),
        **more,
    }
    for name, fits in allowed.items():
        if options[name] is not None and not fits:
            what = "--decisions" if decisions else "--engine" if engine else "neither --engine nor --decisions"
            raise ValueError(f"--{name}: found it with {what}, expected it {WHERE.get(name, 'without')}")


def gate_of(options: Mapping[str, Any]) -> Gate:
    """The gate of --gate, whose caution is printed; without it, that of the costs that flags state."""
    if options["gate"]:
        gate = Gate.load(options["gate"]).for_models(options["gate"])
        if gate.caution:
            print(f"{options['gate']}: {gate.caution}", file=sys.stderr)
        return gate
    for name in ("c_fa", "c_fn"):
        if options[name] is None:
            raise ValueError(f"--{name}: found no cost, expected it, or --gate with a file that has it")
    return Gate.at_costs(c_fa=options["c_fa"], c_fn=options["c_fn"])


def decision_model(
    options: Mapping[str, Any], gate: Gate, stack: contextlib.ExitStack, *, machines: bool = False
) -> tuple[DecisionReader, Exported]:
    """The reader of --decisions, and what stands for the prism.json that it lacks; several `machines` may share it."""
    from prism_jax.remote.cache import Cache

    path, budget = options["answers"] or DEFAULT_ANSWERS, options["budget"] or 0.0
    cache = stack.enter_context(Cache(path, budget, machines=machines))
    names = ("key", "deadline", "questions", "window", "prompt_cache", "input_price", "output_price")
    given = {name: options[name] for name in names if options[name] is not None}
    url, model = options["decisions"], options["decision_model"]
    return loading.load_decisions(url, model, gate, cache=cache, redact=options["redact"], **given)


def _loading(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `loading.load_reader`, or of `loading.load_engine`."""
    names = OPTIONS if options["engine"] is None else ENGINE_OPTIONS
    given = {name: options[name] for name in names if options[name] is not None}
    return {"name": options["model"], "report": say, **given}


def population_of(options: Mapping[str, Any]) -> Population | None:
    """The parameters of --population; None without it."""
    path = options["population"]
    if path is None:
        return None
    return population_from(read_object(path, "`python -m prism_jax state --population_out`", StoreError), path)


def point_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags change in the operating point."""
    return {name: options[name] for name in POINT_FIELDS if options[name] is not None}


def replay_records(options: Mapping[str, Any]) -> None:
    """Decides again on the records of --replay, and writes the new ones; ValueError and OSError have one line."""
    of_an_agent = "state population recalibrate engine decisions gate"
    check_together(f"{of_an_agent} with replay: none: a replay takes all from the records", options=options)
    changes = Changes(
        point=point_changes(options),
        **({} if options["calibration"] is None else _maps(options["calibration"])),
        offers=_budget(options, "offers"),
        thoughts=_budget(options, "thoughts"),
        exploration=_exploration(options),
        no_exploration=options["explore"] == 0,
    )
    path = epath.Path(options["replay"])
    if options["records"] is not None:
        check_absent(options["records"])
    lines = read_lines(path, RecordsError, "in --replay the records of an agent")
    logged = [(f"{path}:{number}", parse_record(line, f"{path}:{number}")) for number, line in lines]
    again = list(replay(logged, changes))
    if options["records"] is None:
        for record in again:
            _print(encode(record))
    else:
        write_bytes(options["records"], b"".join(map(encode, again)))
    decided = [record for record in again if record["kind"] == "decision"]
    before = [record for _, record in logged if record["kind"] == "decision"]
    changed = sum(new["spoke"] != old["spoke"] for new, old in zip(decided, before, strict=True))
    offers, thoughts = (sum(record[key] for record in decided) for key in ("spoke", "thought"))
    say(f"{len(decided)} decisions, {changed} changed, {offers} offers, {thoughts} thought about")


def settings_from(options: Mapping[str, Any], terms: Terms, changes: Mapping[str, Any]) -> AgentSettings:
    """The settings that the flags of `agent` ask for; ValueError names the flag, for a value out of range.

    `terms` are those of the exported model, and `changes` what the flags change in its operating point.
    """
    point = AgentSettings(terms).at(changes).point
    critical = Critical(frozenset(options["critical_text"]), tuple(options["critical_pattern"]))
    return AgentSettings(
        Terms(point, _budget(options, "offers"), _budget(options, "thoughts"), _exploration(options)),
        critical,
        redact=options["redact"],
        keep_texts=options["keep_texts"],
        people=_people(options),
    )


def _people(options: Mapping[str, Any]) -> PeopleSettings:
    if options["state"] is None and (options["population"] is not None or options.get("recalibrate")):
        name = "recalibrate" if options["population"] is None else "population"
        raise ValueError(f"--{name}: found it without --state, expected the state whose people it is for")
    try:
        return PeopleSettings(options["optimism"], options.get("recalibrate", False), options["alarm"] or None)
    except ValueError as error:
        raise ValueError(f"--{error}") from error


def _budget(options: Mapping[str, Any], kind: str) -> Budget | None:
    """The budget of `offers` or `thoughts`; None where no flag sets it."""
    most = options[f"most_{kind}"]
    try:
        return None if most is None else Budget(most, options[f"{kind}_window"])
    except ValueError as error:
        raise ValueError(f"--most_{kind}, --{kind}_window: {error}") from error


def _exploration(options: Mapping[str, Any]) -> Exploration | None:
    try:
        return Exploration(options["explore"], options["explore_loss"], options["seed"]) if options["explore"] else None
    except ValueError as error:
        raise ValueError(f"--explore, --explore_loss, --seed: {error}") from error


def _maps(path: str) -> dict[str, Any]:
    """The maps of a calibration.json (of an out-of-fold one, of all folds together), and what p_need means to them."""
    from prism_jax.evaluation.fits import SIGNALS, read_calibration

    calibration = read_calibration(path).pooled()
    fits = {name: getattr(calibration, name) for name in SIGNALS}
    maps = {name: fit.map for name, fit in fits.items() if fit is not None}
    return {"maps": maps, "need_target": calibration.need_target}


def _run(
    agent: Decider, options: Mapping[str, Any], write: Callable[[bytes], None], store: StateStore | None = None
) -> None:
    agent.reader.warm_up()
    if isinstance(agent.reader, AskingReader):
        agent.reader.ends = "first"
    place = "standard input" if options["input"] == "-" else options["input"]
    loop = InputLoop(agent, write, place, report=say, skip_bad=options["skip_bad"], batch=options["batch"])
    try:
        with contextlib.nullcontext(sys.stdin) if options["input"] == "-" else pathlib.Path(place).open("rb") as source:
            descriptor = source.fileno()
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode) and options["input"] != "-"
            path = os.path.realpath(place) if regular else None
            if store is None or path is None:
                loop.answer(InputLines(descriptor, place))
            else:
                partition = store.partition(0)
                loop.answer(lines := InputLines(descriptor, place, path, partition.input(path)))
                if loop.skipped and lines.last is not None:  # behind refused lines at the end, too
                    with partition.transaction():
                        partition.note_input(lines.last)
    except BaseException:
        if loop.statistics.events:
            _say_what_was_done(agent, loop)
        raise
    _say_what_was_done(agent, loop)


def _say_what_was_done(agent: Decider, loop: InputLoop) -> None:
    for line in loop.statistics.lines():
        say(line)
    if isinstance(agent.reader, AskingReader):
        say(agent.reader.sent)
    skipped = f", {loop.skipped} bad lines skipped" if loop.skip_bad else ""
    if agent.people is not None:
        alarms = agent.people.alarms()
        rang = f": of people {', '.join(map(str, alarms.rang[:20]))}" if alarms.rang else ""
        say(
            f"{alarms.people} people known; {len(alarms.rang)} alarms have rung{rang}; "
            f"log of the alarms' product {alarms.log_product:.3g}"
        )
    say(f"{agent.reader.programs} programs compiled{skipped}")


def _print(record: bytes) -> None:
    write_whole(sys.stdout.fileno(), record)
