"""One property of every JSON that is read: with one field changed, it is refused in one line that names the field.

A field is replaced by a value of every other kind, left out, or gets an unknown field beside it. What a reader takes
nevertheless stands in `TAKEN`; `tests/test_shape_bounds.py` has bounds and rules between fields.
"""

import copy
import dataclasses
import fnmatch
import json
import re

import numpy as np
import pytest
from etils import epath
from exported_folder import prism
from fake_reader import FakeReader, exported
from offers import make_stream
from test_hf_config import QWEN3_8B, SMOLLM2_135M

from prism_jax import Gate
from prism_jax.agent.agent import Agent
from prism_jax.agent.decision_reader import Questions
from prism_jax.agent.exported import read_exported
from prism_jax.agent.lines import LineError, parse_line
from prism_jax.agent.rating import read_scenarios
from prism_jax.agent.records import SIGNALS
from prism_jax.agent.records_file import RecordsError, parse_record
from prism_jax.agent.service.http import ApiError
from prism_jax.agent.service.requests import event_of, json_of, outcome_of, stated_of
from prism_jax.agent.steps import Observation
from prism_jax.decision import alarm
from prism_jax.decision.calibration import GroupedTemperature, Isotonic, Platt, Temperature
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.decision.person import DEFAULT
from prism_jax.decision.score_maps import Scale, ScoreColumn
from prism_jax.decision.thinking import Moves
from prism_jax.evaluation.fits import Calibration, SignalFit, ThinkingFit, read_calibration
from prism_jax.labelling.judges.votes import Vote, read_votes
from prism_jax.labelling.teacher.text_calibrator import TextMap, read_text_calibrator
from prism_jax.people import recalibration
from prism_jax.people.exports import StoreError, population_from, read_export
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.saved import SavedProbe, load_probe, save_probe
from prism_jax.probe.words import describe
from prism_jax.runtime import schema
from prism_jax.runtime.dataclass_config import to_dict
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.files import read_object
from prism_jax.streams import Candidate, Event
from prism_jax.streams.jsonl import encode_stream, read_streams
from prism_jax.streams.proactivebench_source import _stream_files, read_judgements
from prism_jax.streams.published.activitywatch import read_activitywatch
from prism_jax.streams.published.contextagent import read_contextagent
from prism_jax.streams.published.knowu import read_knowu
from prism_jax.streams.published.recorded import read_recorded
from prism_jax.streams.published.sharegpt import read_sharegpt
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.streams.traces import read_trace
from prism_jax.student.weights.architecture import config_from_hf
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

OTHERS = (
    *(("null", None), ("true", True), ("number", 0.37), ("other", "other"), ("empty", []), ("empty", {})),
    *(("other", ["other"]), ("object", {"other": 1}), ("infinite", float("inf"))),
)
"""A value of every kind, by its name; an infinite number stands for all that no double holds."""


def of_kind(value):
    """The kind of a JSON value; what holds something and what holds nothing are two."""
    if isinstance(value, bool) or value is None:
        return str(value is None)
    if isinstance(value, int | float):
        return "number" if abs(value) < float("inf") else "infinite"
    return f"{type(value).__name__} {bool(value)}"


def places_in(value, place=()):
    """Every place within a JSON value, of a list its first entry; then the value."""
    for key, of_key in (
        value.items() if isinstance(value, dict) else enumerate(value[:1] if isinstance(value, list) else [])
    ):
        yield from places_in(of_key, (*place, key))
        yield (*place, key), of_key


def changed(tree, place, change):
    tree = holder = copy.deepcopy(tree)
    for key in place[:-1]:
        holder = holder[key]
    change(holder, place[-1])
    return tree


def mutations(tree):
    """(place, what was done to it, the tree with it)."""
    for place, value in places_in(tree):
        for name, other in OTHERS:
            if of_kind(other) != of_kind(value):
                yield place, name, changed(tree, place, lambda at, key, new=other: at.__setitem__(key, new))
        if isinstance(place[-1], str):
            yield place, "left out", changed(tree, place, lambda at, key: at.pop(key))
        if isinstance(value, dict):
            yield place, "unknown", changed(tree, place, lambda at, key: at[key].__setitem__("nobody_knows", 1))
    yield from (((), name, other) for name, other in OTHERS if of_kind(other).split()[0] != of_kind(tree).split()[0])
    if isinstance(tree, dict):
        yield (), "unknown", {**tree, "nobody_knows": 1}


def text_calibrator():
    words = {"terms": ("risk:", "risk:low"), "idf": np.array([1.0, 1.5]), "weights": np.array([0.25, -1.0])}
    numbers = {"intercept": 0.5, "scale": 1.0, "bias": 0.5, "base_rate": 0.5, "regularisation": 1.0}
    one = TextMap(**words, **numbers, rows=9, streams=3)
    return {"format": 1, "need": one.to_dict(), "accept": one.to_dict()}


def calibration(folds=True):
    maps = (Platt(0.7, 0.1, 3.0), Isotonic(np.array([0.1, 0.9]), np.array([0.2, 0.8])), Temperature(1.5))
    maps = (*maps, GroupedTemperature({"code": 1.2}, 1.1))
    fits = [SignalFit(one, base_rate=0.4, count=9, effective_count=8.5, offer_rate=0.3, certain=1) for one in maps]
    return Calibration(
        *fits, thinking=ThinkingFit(Moves(0.5, 0.2, 0.1), 12.5, 9), folds={0: calibration(False)} if folds else {}
    )


def gate(**given):
    point = OperatingPoint(c_fa=2.0, c_fn=1.5)
    return Gate(point, Platt(0.7, 0.1, 3.0), Isotonic(np.array([0.1, 0.9]), np.array([0.2, 0.8])), **given).to_dict()


def gate_of_score():
    point = OperatingPoint(c_fa=2.0, c_fn=1.5)
    return Gate(point, Platt(0.7, 0.1), score=ScoreColumn("sure", Scale(0.5, 2.0))).to_dict()


def records():
    """A decision of one person with an offer, and its outcome."""
    agent = Agent(FakeReader(), exported(point=OperatingPoint(c_fa=0.1)))
    for number in range(9):
        event = Event(time=float(number), text="Opens a file.")
        decision = agent.observe_many([Observation("s", event, (Candidate(text="Mend it?"),), person="ann")])[0]
        if decision.spoke:
            outcome = agent.outcome(stream="s", offer=decision.offer, outcome="accepted", time=99.0, needed=True)
            return [json.loads(json.dumps(one.record())) for one in (decision, outcome)]
    raise AssertionError("it must offer something")


def prediction():
    decision = records()[0] | {"unanswered": "nobody answers"}
    return decision | dict.fromkeys(SIGNALS)


def person():
    known = {"number": 1, "name": "ann", "mean": 0.1, "variance": 0.2, "answers": 3, "time": 5.0}
    return known | {"alarm": [0.5] * alarm.COMPONENTS, "rang": False, "answered": [["run", "s/1"]]}


def people():
    state = recalibration.start(DEFAULT)
    return {
        "format": 1,
        "population": DEFAULT._asdict(),
        "recalibration": {name: float(value) for name, value in state._asdict().items()},
        "forgotten": {"log": -0.5},
        "highest_number": 3,
        "records": [["a.jsonl", "run"]],
        "people": [person()],
    }


def stream():
    made = simulate(SimulatorConfig(min_events=3, max_events=3), 0)
    step = dataclasses.replace(made.steps[0], votes=(True,), y_need=0.5, teacher_need=0.5, recorded={"on_call": 1.5})
    offer = dataclasses.replace(step.candidates[0], votes=(True,), y_accept=0.5, logged=True, propensity=0.5)
    offer = dataclasses.replace(offer, text="Mend it?", response="Shall I?", teacher_accept=0.5)
    step = dataclasses.replace(step, candidates=(offer,), rationale={"risk": "low"})
    event = dataclasses.replace(made.events[0], time_text="at nine")
    made = dataclasses.replace(made, events=(event, *made.events[1:]), steps=(step,), curated="all")
    return json.loads(encode_stream(made))


def vote():
    sent = {"model": "m-1", "request": "0f" * 32, "time": "2025-01-02T03:04:05+00:00", "cost": 0.25, "prompt": "ours"}
    one = Vote(stream="s", step=0, candidate=0, judge="a", question="0f" * 32, verdict=True, **sent)
    return dataclasses.asdict(one)


EVENT = {"stream": "s", "time": 1.5, "text": "Opens a file.", "candidates": ["Mend it?"], "costs": {"c_fn": 4.0}}
EVENT |= {"domain": "coding", "person": "ann", "spoke": True}
OF_PATH = {key: value for key, value in EVENT.items() if key != "stream"}
OUTCOME = {"stream": "s", "offer": "s/1", "outcome": "accepted", "time": 1.5, "needed": True}
STATED = {"stream": "s", "time": 1.5, "p_need": 0.5, "p_accept": 0.25, "person": "ann", "domain": "coding"}
SCENARIO = {"events": ["Opens a file."], "offer": "Mend it?", "domain": "coding"}
MOMENT = {"Category": "Garden", "Vision": "A hose leaks.", "Personas": ["Forgetful"], "Proactive index": "true"}
LOGGED = {"time": "2026-03-01T07:00:10+08:00", "location": "Lane", "action": "Stops the alarm.", "label": "signal"}
SHOWN = {"timestamp": "2026-03-02T08:00:00+00:00", "duration": 60.5, "data": {"app": "Editor", "title": "notes"}}
WINDOWS = {"buckets": {"window": {"type": "currentwindow", "hostname": "den", "events": [SHOWN]}}}
FIELDS = {"Purpose": "To work.", "Thoughts": "Hm.", "Response": "Shall I?"}
RECORDED = [{"observation": {"time": "Day 1, 9:00 AM", "event": "Looks."}, "agent_response": ["Mend it."]}]
RECORDED[0] |= {"other_infomation": FIELDS}
JUDGED = {"obs": [{"time": "3.5", "event": "Looks."}], "pred_task": "Mend it?", "valid": True, "help_needed": True}
JUDGED |= {"annotation": [True, False]}
JUDGEMENTS = "dataset/reward_data/train_data.jsonl"
STEPS = [{"observation": {"event": "Looks."}}]
SAID = [{"from": "human", "value": json.dumps({"Time": "Day 1, 9:00 AM", "Event": "Looks."})}]
SAID += [{"from": "gpt", "value": json.dumps(FIELDS | {"Proactive Task": "Mend it."})}]
ADAPTERS = {"peft_type": "LORA", "bias": "none", "init_lora_weights": True, "r": 2, "lora_alpha": 4.0}
ADAPTERS |= {"trainable_token_indices": [1], "modules_to_save": None, "use_rslora": True, "lora_bias": False}
ROPE = {"rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "type": "default", "rope_theta": 1e6}}
ROPE |= {"layer_types": ["full_attention"], "partial_rotary_factor": 1, "quantization_config": None, "mlp_bias": False}
QUESTIONS = {"need": "Is help needed?", "accept": "Is {offer} accepted?", "offer": "help"}


def as_line(parse, error):
    def read(path):
        try:
            parse(path.read_bytes(), f"{path}:1")
        except error as refused:
            raise ValueError(str(refused)) from None

    return read


def as_body(read):
    def read_body(path):
        try:
            read(json_of(path.read_bytes()))
        except ApiError as refused:
            raise ValueError(f"{path}: {refused}") from None

    return read_body


def in_folder(read, levels=0, listed=False):
    def read_folder(path):
        if listed:
            write_digests(epath.Path(path.parent))
        read(epath.Path(path.parents[levels]))

    return read_folder


def from_object(read):
    return lambda path: read(read_object(path, "a test", StoreError), str(path))


def read_config(path):
    config_from_hf(read_object(path, "transformers"), "float32", str(path))


def read_settings(path):
    from prism_jax.student.weights.peft import _settings

    _settings(read_object(path, "PEFT"), str(path), True, ("base_model.model.model.layers.0.q_proj.lora_A.weight",))


OF_RECORD = {
    "null": "candidate offer person response threshold",
    "empty": "candidates budgets exploration fast fields policy seconds slow trigger costs",
    "any": "budgets.* candidates.0 costs.* fast.* policy.* seconds.* trigger.* exploration slow",
    "unknown": ". budgets costs fast person policy seconds tokens trigger",
    "left out": "person",
    "true": "format",
    "another": "kind unanswered",
}
OF_EVENT = {
    "null": "candidates candidates.0 costs person spoke",
    "left out": "candidates costs domain person spoke",
    "empty": "costs",
    "unknown": "costs",
    "any": "costs.c_fn",
}
OF_MODEL = {
    "null": "architectures head_dim initializer_range num_key_value_heads",
    "left out": "architectures *_bias head_dim hidden_act initializer_range num_key_value_heads rope_* tie_* use_*",
    "any": "attention_dropout ?os_token_id max_window_layers sliding_window torch_dtype use_cache rope_scaling",
    "unknown": ".",
}
TAKEN = {
    "gate": {
        "null": "accept accept.bound fitted need",
        "left out": "accept.bound caution fitted",
        "unknown": "accept fitted need",
        "any": "fitted.rows",
    },
    "gate on a score": {"null": "score", "left out": "score", "unknown": "accept", "another": "accept"},
    "calibration": {
        "null": "*offer_rate *_slow *bound *thinking *tokens",
        "left out": "*offer_rate *certain *.code folds folds.0 *bound *need_slow.calibrator *need_target *thinking",
        "unknown": "*.temperatures",
        "empty": "*.temperatures folds",
    },
    "export": {
        "any": "checkpoint dynamic probability slots.*",
        "unknown": "slots",
        "empty": "decision slots",
        "left out": "calibration.*.calibrator decision.*",
        "another": "slots.*",
    },
    "people": {"null": "forgotten people.0.time recalibration", "empty": "people people.0.answered records"},
    "streams": {
        "null": "*_text *.logged *_true *.propensity *.response *.teacher_* *.0.text *.y_* *.rationale",
        "left out": "curated domain persona steps *_text *.candidates *.candidates.0.* steps.0.[prtvy]*",
        "empty": "steps *.votes *.candidates.0 *.rationale *.recorded",
        "true": "*.y_accept *.y_need",
        "unknown": "*.recorded",
    },
    "scenarios": {"null": "offer", "left out": "domain"},
    "votes": {"null": "candidate model request time", "left out": "cost model problem prompt request time"},
    "an event": OF_EVENT,
    "an event's body": OF_EVENT,
    "an outcome": {"null": "needed", "left out": "needed"},
    "an outcome's body": {"null": "needed", "left out": "needed"},
    "stated": {"null": "person", "left out": "domain person"},
    "a decision": OF_RECORD,
    "an unanswered event": OF_RECORD,
    "a recorded outcome": {**OF_RECORD, "null": "needed"},
    "moments": {
        "any": "row-1.Category row-1.Personas* row-1.Vision",
        "true": "row-1.Proactive_index",
        "unknown": "row-1",
        "another": "row-1 row-1.Proactive_index",
    },
    "phone's log": {"null": "0.label 0.location", "left out": "0.label 0.location", "unknown": "0"},
    "windows": {
        "left out": "buckets.window.hostname",
        "any": "*.data.app *.data.title",
        "unknown": ". buckets.window *.0 *.data",
        "another": "*.events *.data *.duration",
    },
    "judgements": {"null": "pred_task", "unknown": ". obs.0"},
    "judged streams": {"unknown": "0 0.observation"},
    "traces": {"any": "0.agent_response* 0.other_infomation*", "unknown": "0 0.observation"},
    "recorded answers": {
        "null": "0.other_infomation.*",
        "left out": "0.other_infomation.*",
        "empty": "0.agent_response 0.other_infomation",
        "unknown": "0 0.observation 0.other_infomation",
        "any": "0.agent_response.0",
    },
    "conversations": {"unknown": ". conversations.0", "another": "conversations conversations.0"},
    "config": {
        "left out": "*",
        "empty": "calibration data decision lora loss mesh packing pathway prompt simulator student training writing",
        "other": "data.source data.without_domain prompt.tokenizer training.start training.frozen",
    },
    "Qwen": OF_MODEL,
    "Qwen with all keys": {
        "null": f"{OF_MODEL['null']} layer_types rope_parameters rope_theta",
        "left out": f"{OF_MODEL['left out']} layer_types partial_* quantization_*",
        "empty": "layer_types rope_parameters",
        "any": OF_MODEL["any"],
        "unknown": ". rope_parameters",
        "another": "rope_parameters.rope_theta",
    },
    "Llama": OF_MODEL,
    "adapters": {
        "null": "init_lora_weights lora_bias trainable_token_indices",
        "left out": "bias init_lora_weights lora_bias modules_to_save trainable_token_indices",
        "empty": "lora_bias modules_to_save trainable_token_indices",
        "true": "trainable_token_indices.0",
        "any": "use_rslora",
    },
    "questions": {"left out": "*"},
    "probe": {"unknown": "columns intercepts"},
    "n-grams": {"left out": "frequency.*", "unknown": "frequency", "empty": "frequency"},
}
"""What is taken nevertheless, and where, by shape: what it may be replaced by, or `any` of it. Of `another`, the
message names another field, such as the one that it does not go with."""
SHAPES = {
    "gate": ("gate.json", gate(caution="beats", fitted={"model": "0f", "rows": 3}), Gate.load),
    "gate on a score": ("gate.json", gate_of_score(), Gate.load),
    "calibration": ("calibration.json", calibration().to_dict(), read_calibration),
    "export": ("prism.json", None, in_folder(read_exported, listed=True)),
    "text calibrator": ("text.json", text_calibrator(), read_text_calibrator),
    "people": ("people.json", people(), from_object(read_export)),
    "population": ("population.json", DEFAULT._asdict(), from_object(population_from)),
    "streams": ("s.jsonl", stream(), read_streams),
    "scenarios": ("s.jsonl", SCENARIO, read_scenarios),
    "votes": ("v.jsonl", vote(), lambda path: list(read_votes(path))),
    "an event": ("e.jsonl", EVENT, as_line(parse_line, LineError)),
    "an outcome": ("e.jsonl", OUTCOME, as_line(parse_line, LineError)),
    "stated": ("body", STATED, as_body(stated_of)),
    "an event's body": ("body", OF_PATH, as_body(lambda value: event_of(value, "s", "body"))),
    "an outcome's body": ("body", OUTCOME, as_body(outcome_of)),
    "a decision": ("r.jsonl", records()[0], as_line(parse_record, RecordsError)),
    "an unanswered event": ("r.jsonl", prediction(), as_line(parse_record, RecordsError)),
    "a recorded outcome": ("r.jsonl", records()[1], as_line(parse_record, RecordsError)),
    "moments": ("data/cab/cab_train.json", {"row-1": MOMENT}, in_folder(read_contextagent, 2)),
    "phone's log": ("src/knowu_bench/user_logs/baker.json", [LOGGED], in_folder(read_knowu, 3)),
    "windows": ("aw.json", WINDOWS, read_activitywatch),
    "judgements": (JUDGEMENTS, JUDGED, in_folder(lambda folder: list(read_judgements(folder, JUDGEMENTS)), 2)),
    "judged streams": ("dataset/test_data/code_1.json", STEPS, in_folder(_stream_files, 2)),
    "traces": ("code_1.json", RECORDED, read_trace),
    "recorded answers": ("code_1.json", RECORDED, in_folder(read_recorded)),
    "conversations": ("rows.jsonl", {"conversations": SAID}, read_sharegpt),
    "config": ("config.json", to_dict(RunConfig()), in_folder(lambda folder: Workdir(folder).load_config())),
    "Qwen": ("config.json", QWEN3_8B, read_config),
    "Qwen with all keys": ("config.json", QWEN3_8B | ROPE, read_config),
    "Llama": ("config.json", SMOLLM2_135M, read_config),
    "adapters": ("adapter_config.json", ADAPTERS, read_settings),
    "questions": ("q.json", QUESTIONS, Questions.read),
    "probe": ("probe.json", None, in_folder(load_probe, listed=True)),
    "n-grams": ("ngrams.json", None, in_folder(load_probe, listed=True)),
}


def whole(name, folder):
    """The path of a valid file, what it holds, and its reader."""
    file, tree, read = SHAPES[name]
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in ("probe", "n-grams"):
        seen = [StreamInputs(describe(make_stream(number))) for number in range(4)]
        save_probe(folder / "probe", SavedProbe(fit_probe(seen, FitConfig(), StatesConfig())))
        path = folder / "probe" / file
        tree = json.loads(path.read_text())
    if name == "n-grams":
        tree["frequency"] = dict(list(tree["frequency"].items())[:1])
    return path, tree if tree is not None else prism(), read


def outcomes(name, folder):
    """(place, change, the message of the refusal or None) of every mutation."""
    path, tree, read = whole(name, folder)
    path.write_text(json.dumps(tree, separators=(",", ":")) + "\n")
    read(path)
    kept = schema._validator.cache_info().currsize
    read(path)
    assert schema._validator.cache_info().currsize == kept  # none is made anew for every file
    before = sorted(folder.rglob("*"))
    for place, change, other in mutations(tree):
        path.write_text(json.dumps(other, separators=(",", ":")) + "\n")
        try:
            read(path)
            yield place, change, None
        except (ValueError, OSError) as error:
            yield place, change, str(error)
    assert sorted(folder.rglob("*")) == before


def patterns(name, change):
    """Where a change of a shape is taken."""
    of_shape = TAKEN.get(name, {})
    return [*of_shape.get(change, "").split(), *of_shape.get("any", "").split()]


@pytest.mark.parametrize("name", SHAPES)
def test_one_changed_field_is_refused_in_one_line_that_names_it(name, tmp_path):
    refused = 0
    for place, change, message in outcomes(name, tmp_path):
        at = ".".join(map(str, place)).replace(" ", "_") or "."
        if message is None:
            assert any(fnmatch.fnmatchcase(at, one) for one in patterns(name, change)), (at, change)
            continue
        refused += 1
        assert message.startswith(str(tmp_path)) and "\n" not in message and len(message) < 1000
        assert ("found" in message and "expected" in message) or "unknown key" in message
        if not any(fnmatch.fnmatchcase(at, one) for one in patterns(name, "another")):
            keys = [key for key in place if isinstance(key, str)] or [""]
            assert ("nobody_knows" if change == "unknown" else keys[-1]) in message, (at, change, message)
    assert refused > 9


NO_JSON = {
    b'{"a": 1\n': "found broken JSON at column 8 (Expecting ',' delimiter), expected a JSON value",
    b'{"a": 1}{"a": 1}\n': "found broken JSON at column 9 (Extra data), expected a JSON value",
    b"\n": "found nothing, expected a JSON value",
    b'{"a": 1, "a": 2}\n': "found key 'a' twice in one object, expected each key once",
    b'{"a": "\xff"}\n': "found byte 0xff at 7, expected UTF-8",
    b"[" * 100_000: "found brackets nested too deep, expected a JSON value",
    b"1" * 5_000: "found a number with too many digits, expected a JSON value",
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_no_json_is_refused_in_one_line_that_names_the_file(name, tmp_path):
    path, _, read = whole(name, tmp_path)
    for content, said in NO_JSON.items():
        path.write_bytes(content)
        with pytest.raises((ValueError, OSError), match=f"^{tmp_path}.*: {re.escape(said)}$"):
            read(path)
