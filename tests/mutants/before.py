"""The faults as commit d2992f0 holds their code, before packages and variables were renamed; for `run.py --before`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from faults import FAULTS, Fault

PACKAGES = {  # beginnings of paths inside prism_jax, today's and then's; the first that fits counts
    "acceptance/log_evaluation.py": "recipes/acceptance_log.py",
    "acceptance/log_scores.py": "recipes/log_scores.py",
    "acceptance/": "people/",
    "agent/": "policy/",
    "audit/": "published/",
    "commands/person.py": "recipes/people_store.py",
    "evaluation/policy_rows.py": "evaluation/policies.py",
    "evaluation/ratios.py": "evaluation/value_ratios.py",
    "proactivebench/": "evaluation/",
    "runs/": "recipes/",
    "scores/labels.py": "evaluation/signals.py",
    "scoring/slots.py": "slots.py",
    "scoring/": "policy/",
}
TESTS = {  # the same of paths below tests/
    "acceptance/test_acceptance_log.py": "test_acceptance_log.py",
    "acceptance/": "people/",
    "agent/": "policy/",
    "audit/": "published/",
    "commands/": "",
    "proactivebench/test_official.py": "evaluation/test_official.py",
    "proactivebench/": "experiments/",
    "scoring/": "policy/",
}
CODE = {  # what `old` and `new` were where they read otherwise
    "critical-ratio-without-need": (
        "xp.inf, (1 - p_accept) / xp.where(beyond, 1.0, both))[()]",
        "xp.inf, (1 - p_accept) / xp.where(beyond, 1.0, p_accept))[()]",
    ),
    "fixed-threshold-tie": (
        "xp.broadcast_to(p_accept >= fixed_threshold, shape)",
        "xp.broadcast_to(p_accept > fixed_threshold, shape)",
    ),
    "half-a-slow-margin": (
        "high, low = accept + delta, accept - delta",
        "high, low = accept + delta / 2, accept - delta / 2",
    ),
    "deviation-half-covariance": ("+ 2 * by_accept * by_need * both", "+ by_accept * by_need * both"),
    "burden-of-unseen-answers": (
        "Sums(c_fa * jnp.sum(seen * g * (1 - accept)), total_seen)",
        "Sums(c_fa * jnp.sum(v * g * (1 - accept)), total_seen)",
    ),
    "missed-help-without-acceptance": (
        "Sums(c_fn * jnp.sum(seen * (1 - g) * need * accept), total_seen)",
        "Sums(c_fn * jnp.sum(seen * (1 - g) * need), total_seen)",
    ),
    "tokens-are-rewarded": (
        "return reward - c_fa * chosen * (1 - seen) - c_tok * length",
        "return reward - c_fa * chosen * (1 - seen) + c_tok * length",
    ),
    "curation-penalises-unseen-answers": ("- seen * (accept - label_accept) ** 2", "- (accept - label_accept) ** 2"),
    "smallest-remainders": ('first = np.argsort(-rest, kind="stable")', 'first = np.argsort(rest, kind="stable")'),
    "rule-with-the-bias-added": (
        "scipy.special.expit((wanted - bias) / scale)",
        "scipy.special.expit((wanted + bias) / scale)",
    ),
    "paired-difference-sign": (
        "return _rates(other.reshape(four), names) - _rates(one.reshape(four), names)",
        "return _rates(one.reshape(four), names) - _rates(other.reshape(four), names)",
    ),
    "paired-labels-swapped": (
        "one, other = cube.sum((-3, -1)), cube.sum((-4, -2))",
        "one, other = cube.sum((-4, -1)), cube.sum((-3, -2))",
    ),
    "cross-fit-sees-its-fold": ("others = sum(products) - own", "others = sum(products)"),
    "unseen-offers-with-swapped-costs": (
        "low=found.low - c_fn * unseen, high=found.high + c_fa * unseen",
        "low=found.low - c_fa * unseen, high=found.high + c_fn * unseen",
    ),
    "missed-help-by-the-chosen-offer": ('"missed_help": (none, missed, 0.0),', '"missed_help": (none, y, 0.0),'),
    "map-fitted-without-weights": (
        "measures.fit_map(config, p, y, weight, None if domain is None else domain[known])",
        "measures.fit_map(config, p, y, None, None if domain is None else domain[known])",
    ),
    "ties-all-offered": ("return above + tied * min(max(left, 0.0), 1.0)", "return above + tied * 1.0"),
    "thresholds-chosen-on-test-steps": (
        "runs = found >= budgets.threshold_at_rate(known, budget)",
        "runs = found >= budgets.threshold_at_rate(found, budget)",
    ),
    "merged-parts-swap-scales": (
        "a, b = jnp.exp(first.peak - peak), jnp.exp(other.peak - peak)",
        "b, a = jnp.exp(first.peak - peak), jnp.exp(other.peak - peak)",
    ),
    "last-line-of-metrics-lost": ("if found <= step:", "if found < step:"),
    "changed-export-passes": ('if digests.get("prism.json") != found:', 'if "prism.json" not in digests:'),
    "nested-fit-sees-its-stream": ("[one for one in ordered if one.words.stream.id not in inside]", "list(ordered)"),
    "redirect-to-another-port": ("if here != there:", "if request.url.host != response.next_request.url.host:"),
}


def _then(path: str, names: Mapping[str, str]) -> str:
    fitting = next((name for name in names if path.startswith(name)), "")
    return names.get(fitting, "") + path.removeprefix(fitting)


def _before(fault: Fault) -> Fault:
    old, new = CODE.get(fault.name, (fault.old, fault.new))
    tests = tuple(_then(name, TESTS) for name in fault.tests)
    return dataclasses.replace(fault, path=_then(fault.path, PACKAGES), old=old, new=new, tests=tests)


FAULTS_BEFORE = tuple(map(_before, FAULTS))
