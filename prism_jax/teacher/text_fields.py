"""What the text calibrator reads: the texts of a step and of its candidates by field, and the terms in them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping

from prism_jax.prompting.template import RESPONSE_KEYS, SLOW_FIELDS
from prism_jax.streams import Candidate, Step

READ = ("Purpose", "Proactive Task", "Response")
"""The keys of a response that are read; its thoughts are not, because an agent may not have them."""
FIELDS = (*SLOW_FIELDS, *READ)
"""The names of all fields."""

_WORDS = re.compile(r"\w+")

Fields = Mapping[str, str]


def step_fields(step: Step) -> dict[str, str]:
    """The texts from which need is read: the slow fields, and the texts of all candidates."""
    texts: dict[str, list[str]] = {name: [text] for name, text in (step.rationale or {}).items() if name in FIELDS}
    for candidate in step.candidates:
        for name, text in _own_fields(candidate).items():
            texts.setdefault(name, []).append(text)
    return {name: "\n".join(dict.fromkeys(lines)) for name, lines in texts.items()}


def candidate_fields(step: Step, candidate: Candidate) -> dict[str, str]:
    """The texts from which the acceptance of one candidate is read: the slow fields, and its own texts."""
    return {name: text for name, text in (step.rationale or {}).items() if name in FIELDS} | _own_fields(candidate)


def _own_fields(candidate: Candidate) -> dict[str, str]:
    """The fields of a response, or the whole response where it has no keys; the offer is the candidate's text."""
    texts: dict[str, str] = {}
    if candidate.response is not None:
        try:
            value = json.loads(candidate.response)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value.keys() & set(RESPONSE_KEYS):
            texts = {name: value[name] for name in READ if isinstance(value.get(name), str) and value[name].strip()}
        else:
            texts["Response"] = candidate.response
    if candidate.text is not None:
        texts["Proactive Task"] = candidate.text
    return texts


def terms(fields: Fields) -> list[str]:
    """The words and pairs of consecutive words of each field, in lower case and with the field's name before them.

    A field with a text also has its bare name as a term, so that its presence counts.
    """
    parts = []
    for name, text in sorted(fields.items()):
        words = _WORDS.findall(text.lower())
        parts.append(f"{name}:")
        parts += [f"{name}:{word}" for word in words]
        parts += [f"{name}:{first} {second}" for first, second in itertools.pairwise(words)]
    return parts
