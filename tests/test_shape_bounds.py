"""What no field may hold although its kind is right: bounds, and rules between fields, of every JSON that is read.

`tests/test_shapes.py` has the files and their readers, and changes the kind of each field.
"""

import copy
import json

import pytest
from test_shapes import calibration, whole

THINKING = {"accept": 1.0, "need": 0.5, "both": 0.2, "tokens": 3.0, "count": 400}
LATER = {"time": "2026-03-01T07:00:10", "action": "Stops the alarm."}
BEYOND = {
    "gate": [
        ("c_fa", -1.0, "c_fa: found -1.0, expected a cost"),
        ("policy", "sometimes", "policy: found 'sometimes', expected one of"),
    ],
    "calibration": [
        ("accept_slow.base_rate", 1.5, "accept_slow.base_rate: found 1.5, expected a number in"),
        ("folds.a", calibration(False).to_dict(), "folds.a: found another key than a number"),
        ("folds.0.need_target", "given_accept", "folds.0.need_target: found given_accept, expected marginal, as for"),
    ],
    "export": [
        ("decision.c_fa", -1.0, "decision.c_fa: found -1.0, expected a cost"),
        ("calibration.thinking", THINKING | {"both": 9.0}, "calibration.thinking.moves.both: found 9, expected"),
        ("calibration.thinking", THINKING | {"tokens": 0.0}, "calibration.thinking.tokens: found 0.0"),
    ],
    "text calibrator": [
        ("need.weights", [0.5], "need.weights: found 1 numbers, expected"),
        ("need.rows", 0, "need.rows: found 0, expected a count from 1 on"),
        ("need.idf.0", -1.0, "need.idf: found -1.0, expected numbers above 0"),
        ("need.terms", ["risk:", "risk:"], "need.terms: found a term twice, expected distinct terms"),
    ],
    "people": [
        ("format", 2, "format: found 2 (int), expected 1"),
        ("population.spread", 0.0, "population.spread: found 0.0, expected a number from"),
        ("people.0.variance", -1.0, "people[0].variance: found -1.0, expected"),
        ("people.0.alarm", [0.5] * 17, "people[0].alarm: found 17 numbers, expected 18"),
        ("people.0.number", 0, "people[0].number: found 0, expected a number from 1"),
        ("people.0.name", "\ud800", "people[0].name: "),
        ("recalibration.variance_bias", -1.0, "recalibration.variance_bias: found -1.0"),
        ("highest_number", 0, "highest_number: found 0, expected at least that of"),
    ],
    "population": [
        ("scale", -0.1, "scale: found -0.1, expected a number from 0 to 100"),
        ("spread", 1e200, "spread: found 1e+200, expected a number from 1e-09 to 100"),
        ("format", 3, "format: found 3, expected 1"),
    ],
    "streams": [
        ("id", "", "id: found '', expected a non-empty string"),
        ("events.0.time", 1e9, "events[1].time: found "),
        ("events.0.time", 1e308, "events[0].time: found 1e+308, expected a number of seconds of at most 1e+11"),
        ("events.0.text", "a\ud83d", "events[0].text: found the lone surrogate '\\ud83d', expected text"),
        ("events.0.text", "x" * 1_000_001, "events[0].text: found 1000001 characters, expected at most 1000000"),
        ("steps.0.event", 3, "steps[0].event: found 3, expected above -1 and below 3"),
        ("steps.0.candidates", [], "steps[0].candidates: found none, expected at least one"),
        ("steps.0.candidates.0.propensity", 1.5, "found 1.5, expected a probability in [0, 1] or null"),
        ("steps.0.candidates.0.votes", [True, 0], "candidates[0].votes[1]: found 0 (int), expected true or false"),
        ("steps.0.candidates.0.text", "\ud800", "candidates[0].text: found the lone surrogate '\\ud800', expected"),
        (
            "steps.0.candidates.0.text",
            "x" * 1_000_001,
            "candidates[0].text: found 1000001 characters, expected at most",
        ),
        ("steps.0.candidates.0.response", "\udc00", "candidates[0].response: found the lone surrogate '\\udc00', exp"),
        ("steps.0.rationale", {"a\udc80": "b"}, "steps[0].rationale: found the lone surrogate '\\udc80'"),
        ("steps.0.rationale", {f"k{i}": "x" for i in range(1001)}, "rationale: found 1001 keys, expected at most 1000"),
        ("steps.0.recorded", {f"k{i}": 0 for i in range(60_000)}, "recorded: found 60000 keys, expected at most 1000"),
        ("steps.0.a\udc80", 1, "steps[0].'a\\udc80': found an unknown key, expected one of event, candidates"),
    ],
    "stated": [
        ("p_need", 1.5, "p_need: found 1.5, expected a number from 0 to 1"),
        ("p_accept", [0.1, 0.2], "p_accept: found 2 numbers, expected 1"),
        ("text", "x", "text: found an unknown key"),
    ],
    "votes": [
        ("verdict", None, "problem: found None with the verdict None, expected a problem exactly"),
        ("problem", "late", "problem: found 'late' with the verdict True"),
        ("step", -1, "step: found -1, expected at least 0"),
        ("question", "abc", "question: found 'abc', expected a SHA-256"),
        ("judge", " ", "judge: found ' ', expected words"),
        ("time", "yesterday", "time: found 'yesterday', expected ISO 8601"),
        ("cost", -0.1, "cost: found -0.1, expected US dollars"),
    ],
    "phone's log": [
        ("0.time", "noon", "[0].time: found 'noon', expected a date and time"),
        ("1", LATER, "[1].time: found "),
    ],
    "windows": [
        ("buckets.window.events.0.timestamp", "x", "buckets.window.events[0].time: found 'x', exp"),
        ("buckets.window.type", "afkstatus", "found no window that was used, expected"),
    ],
    "judgements": [
        ("obs.0.event", " ", "obs[0].event: found ' ', expected words"),
        ("pred_task", "", "pred_task: found '', expected words"),
        ("pred_task", "\ud83d", "pred_task: found the lone surrogate '\\ud83d', expected text that UTF-8"),
        ("annotation", [], "annotation: found an empty list, expected at least one entry"),
        ("annotation.1", 1, "annotation[1]: found 1 (int), expected true or false"),
    ],
    "traces": [
        ("", [], "found an empty list, expected at least one"),
        ("0.observation.event", " ", "[0].observation.event: found ' ', expected words"),
        ("0.judgement", [1], "judgement[0]: found 1 (int), expected true"),
    ],
    "recorded answers": [
        ("0.agent_response", ["a", "b"], "[0].agent_response: found ['a', 'b'], expected"),
        ("0.agent_response", ["\ud800"], "[0].agent_response[0]: found the lone"),
        ("0.observation.event", " ", "[0].observation.event: found ' ', expected"),
        ("0.observation.time", "noon", "[0].time: found 'noon', expected epoch seconds or a time"),
    ],
    "Qwen": [
        ("architectures", ["Qwen3Model"], "architectures: found ['Qwen3Model'], expected ['Qwen3ForCausalLM']"),
        ("attention_bias", True, "attention_bias: found True (bool), expected False"),
        ("mlp_bias", True, "mlp_bias: found True (bool), expected False"),
        ("use_sliding_window", True, "use_sliding_window: found True (bool), expected False"),
        ("layer_types", ["full_attention", "x"], "layer_types[1]: found 'x' (str), expected 'full_attention'"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor: found 0.5, expected 1: the student rotates whole heads"),
        ("rope_theta", ..., "rope_theta: found nothing, expected a number above 0"),
        ("rope_parameters", {"rope_theta": 3.0}, "rope_theta: found 1000000.0, expected the 3.0 of rope_parameters"),
        ("num_hidden_layers", 36.0, "num_hidden_layers: found 36.0 (float), expected a whole number"),
        ("num_hidden_layers", 0, "num_hidden_layers: found 0, expected a number above 0"),
        ("num_key_value_heads", 5, "num_kv_heads: found 5, expected a divisor of num_heads = 32"),
    ],
    "Llama": [
        ("hidden_size", 577, "head_dim: found nothing, expected a whole number, as hidden_size 577 is no multiple")
    ],
    "adapters": [
        ("r", 0, "r: found 0, expected a number above 0"),
        ("use_dora", True, "use_dora: found True, expected it unset: this variant of LoRA is not known here"),
        ("rank_pattern", {"q_proj": 4}, "rank_pattern: found {'q_proj': 4}, expected it unset"),
        ("init_lora_weights", "pissa", "init_lora_weights: found 'pissa' (str), expected one that leaves the base as"),
        ("trainable_token_indices", {"lm_head": [1]}, "expected those of the head, on a tied head those of the"),
        ("modules_to_save", ["embed_tokens"], "ensure_weight_tying: found None, expected true, so that the head is"),
        ("modules_to_save", ["norm"], "modules_to_save: found ['norm'], expected the embedding and the head"),
    ],
    "questions": [("accept", "Take it?", "accept: found no {offer} in it")],
    "probe": [
        ("columns", {"accept": ["newest"]}, "columns.accept: found other columns"),
        ("states", {}, "intercepts.states: found nothing"),
        ("window", {"events": 9}, "window: found {'events': 9}, expected "),
    ],
}
"""(place, what stands there, or ... where it is left out, what the message says after the file) by shape."""
CASES = [pytest.param(name, *case, id=f"{name} {case[0]}") for name, cases in BEYOND.items() for case in cases]


def with_value(tree, place, value):
    tree = holder = {"": copy.deepcopy(tree)}
    *path, last = ["", *filter(None, place.split("."))]
    for key in path:
        holder = holder[int(key) if isinstance(holder, list) else key]
    if isinstance(holder, list):
        holder[int(last) : int(last) + 1] = [value]
    elif value is ...:
        del holder[last]
    else:
        holder[last] = value
    return tree[""]


@pytest.mark.parametrize(("name", "place", "value", "message"), CASES)
def test_what_is_out_of_bounds_is_refused_in_one_line_that_names_it(name, place, value, message, tmp_path):
    path, tree, read = whole(name, tmp_path)
    path.write_text(json.dumps(with_value(tree, place, value)) + "\n")
    with pytest.raises(ValueError) as refused:
        read(path)
    said = str(refused.value)
    assert said.startswith(str(tmp_path)) and message in said and "\n" not in said and len(said) < 1000
