"""A reader without a model: its log-odds are a fixed function of what a stream has shown, so every run is the same."""

import hashlib
import json

import numpy as np

from prism_jax.agent.exported import Exported
from prism_jax.agent.reader import FastReading, Response, Thought, Unanswered
from prism_jax.decision.calibration import Temperature
from prism_jax.decision.operating_point import OperatingPoint

TEMPERATURES = {"need_fast": 1.3, "accept_fast": 0.8, "need_slow": 1.1, "accept_slow": 2.0}
MAPS = {name: Temperature(temperature) for name, temperature in TEMPERATURES.items()}


def exported(slow=True, point=None, maps=MAPS, thinking=None, responses=True):
    maps = maps if slow else {name: fitted for name, fitted in maps.items() if name.endswith("fast")}
    fingerprints = {"model": "0" * 64, "calibration": "1" * 64, "config": "2" * 64}
    return Exported({}, maps, point or OperatingPoint(), thinking, None, responses, fingerprints)


def number(*parts):
    """A draw from a standard normal, fixed by `parts`."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    u = (np.frombuffer(digest[:16], "<u8") >> 11) * 2.0**-53
    return float(np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1]))


class FakeReader:
    """Satisfies `Reader`; `calls` lists what was asked."""

    programs = 3

    def __init__(self, slow=True, responses=True):
        self.has_slow_pass, self.writes_responses = slow, responses
        self.trunks = {}
        self.calls = []

    def observe(self, items):
        streams = [stream for stream, _, _ in items]
        assert len(set(streams)) == len(streams), "streams must be distinct"
        self.calls.append(("observe", streams))
        for stream, event, _ in items:
            self.trunks[stream] = hashlib.sha256(f"{self.history(stream)}{event}".encode()).hexdigest()
        return [
            FastReading(*self._slots(stream, candidates, "fast"), len(event.text.split()))
            for stream, event, candidates in items
        ]

    def follow(self, items):
        self.observe(items)

    def think(self, items):
        assert self.has_slow_pass
        self.calls.append(("think", [item.stream for item in items]))
        return [
            Thought(*self._slots(stream, candidates, "slow"), {"if_silent": self.history(stream), "risk": "none"}, 7)
            for stream, candidates in items
        ]

    def respond(self, items):
        assert self.writes_responses
        self.calls.append(("respond", [stream for stream, _, _ in items]))
        return [
            Response(json.dumps({"Proactive Task": candidate.text, "Thoughts": fields and fields["risk"]}), 11)
            for _, candidate, fields in items
        ]

    def forget(self, stream):
        self.trunks.pop(stream, None)

    def history(self, stream):
        return self.trunks.get(stream, "")

    def warm_up(self):
        pass

    def _slots(self, stream, candidates, thinking):
        seen = self.history(stream)
        return (
            2 * number(thinking, "need", seen),
            tuple(2 * number(thinking, candidate.text, seen) for candidate in candidates),
        )


class Failing(FakeReader):
    """Gives no slots after every third event."""

    def observe(self, items):
        readings = super().observe(items)
        failed = [int(event.text.split()[-1]) % 3 == 2 for _, event, _ in items]
        return [Unanswered("the engine is away") if no else one for no, one in zip(failed, readings, strict=True)]
