"""The agent's command in this process, and what tests of readers that ask a server share."""

import pathlib

import pytest
from fake_reader import FakeReader

from prism_jax.agent import loading
from prism_jax.agent.serving import DECISION_OPTIONS, replay_records, serve

UNSET = (
    "c_fa", "c_fn", "margin", "policy", "fixed_threshold", "trigger", "price", "most_offers", "most_thoughts",
    "model", "input", "records", "state", "replay", "calibration", "explore", "dtype", "context", "population",
    "memory", "keep", "compilation_cache", "expect_digest", "engine", "decisions", "compute", "jitter", "deadline",
    "key", "gate",
)  # fmt: skip
DEFAULTS = dict.fromkeys([*UNSET, *DECISION_OPTIONS]) | {
    "offers_window": 3600.0,
    "thoughts_window": 3600.0,
    "critical_text": [],
    "critical_pattern": [],
    "explore_loss": 0.1,
    "seed": 0,
    "redact": True,
    "keep_texts": False,
    "skip_bad": False,
    "batch": 256,
    "optimism": True,
    "recalibrate": False,
    "alarm": 0.05,
}
"""What the flags are without arguments."""


@pytest.fixture
def serving(monkeypatch, capfd):
    """Calls what the main calls, in this process; gives the error, standard output and standard error."""
    monkeypatch.setattr(loading, "load_reader", lambda folder, exported, **options: FakeReader(exported.has_slow_pass))

    def call(**given):
        error = None
        capfd.readouterr()
        given = {**DEFAULTS, **{name: str(v) if isinstance(v, pathlib.Path) else v for name, v in given.items()}}
        try:
            (replay_records if given["replay"] else serve)(given)
        except (ValueError, OSError) as raised:
            error = str(raised)
        shown = capfd.readouterr()
        return error, shown.out.encode(), shown.err

    return call


@pytest.fixture
def soon(monkeypatch):
    """Asks again at once where an answer was none; the SDK is loaded before a deadline begins."""
    import openai  # noqa: F401

    monkeypatch.setattr("prism_jax.remote.pacing.MOST_BACKOFF", 0.1)
