"""A client of the server with state, on the standard library alone.

    from prism_jax.adapters.client import Client

    client = Client("http://localhost:8000")
    answer = client.ask("chat", "Shall I run the tests?", p_need=0.9, p_accept=0.7, person="ada", key="call-17")
    if answer.speak:
        print("Shall I run the tests?")
        client.outcome("chat", answer.offer, "accepted")

A server that cannot answer never raises into the host: `otherwise` decides, and the reason says so. What the server
refuses is a mistake of the caller and raises `ClientError`; adapters withhold instead, and find it when they are made.
"""

from __future__ import annotations

import contextlib
import time as clock
from typing import Any, NamedTuple

from prism_jax.adapters.wire import ClientError, OutageError, Wire, as_key, as_path, as_text

BACKWARDS = "events are in time order"
"""What the server says where another caller's later event came first."""
MOST_TRIES, PAUSE = 20, 0.002
"""How often an event whose time is the client's own is sent with a new one, and the seconds by which pauses grow."""


class Answer(NamedTuple):
    """Whether to speak, and why."""

    speak: bool
    reason: str
    p_need: float | None = None
    p_accept: float | None = None
    threshold: float | None = None  # the least p_accept at which the gate speaks
    response: Any = None  # what the model wrote for the offer
    offer: str | None = None  # what the outcome names; None for silence, and where the server gave no answer


SAME = Answer._fields[:-1]
"""Keys that the server's decision has, too."""


class Client:
    """A server with state, as who asks it sees it. Threads may share it."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 2.0, otherwise: str = "silent") -> None:
        """Connects to nothing yet; `timeout` is in seconds, `otherwise` decides where the server gives no answer."""
        if otherwise not in ("silent", "speak"):
            raise ValueError(f"otherwise: found {otherwise!r:.80}, expected 'silent' or 'speak'")
        self._wire, self._speaks = Wire(url, token, timeout), otherwise == "speak"

    def ask(
        self,
        stream: str,
        candidate: str | None = None,
        *,
        text: str = "",
        p_need: float = 1.0,
        p_accept: float | None = None,
        person: str | None = None,
        key: str | None = None,
        time: float | None = None,
    ) -> Answer:
        """Whether to say `candidate` now. With `p_accept` the numbers decide; without, the server reads `text`.

        `time` is in seconds and does not run backwards within a stream; None is now. The same `key` of a stream gets
        the same answer for seven days, even if text or numbers have changed meanwhile: give the id of the tool call.
        """
        body: dict[str, Any] = {"candidates": None if candidate is None else [as_text(candidate)], "person": person}
        if p_accept is None:
            path, body["text"] = f"/v1/streams/{as_path(stream)}/events", as_text(text)
        else:
            path, body = "/v1/decide", body | {"stream": stream, "p_need": p_need, "p_accept": [p_accept]}
        headers = {} if key is None else {"Idempotency-Key": as_key(key), "Prefer": "handling=lenient"}
        for number in range(MOST_TRIES):
            try:
                found = self._wire.post(path, body | {"time": clock.time() if time is None else time}, headers)
                return Answer._make([found[name] for name in SAME] + [found["id"] if found["speak"] else None])
            except OutageError as error:
                return self._stand_in(f"no answer of the server: {error}")
            except (KeyError, TypeError):
                raise ClientError("found an answer that is no decision, expected that of a server with state") from None
            except ClientError as error:
                if time is not None or BACKWARDS not in str(error):
                    raise
                clock.sleep(PAUSE * number)
        return self._stand_in("the last event of the stream is later than this machine's clock")

    def check(self, *, stated: bool) -> None:
        """Raises ClientError unless the server decides for this client: on numbers that are `stated`, or on texts.

        A server that gives no answer yet is taken for one that will. Nothing is decided, and nothing kept.
        """
        path = "/v1/decide" if stated else "/v1/streams/check/events"
        try:
            self._wire.post(path, [], {})  # which holds no event, so that a route that is there refuses it
        except OutageError:
            pass
        except ClientError as error:
            if error.status != 422:
                needs = "" if stated else " and --model, or numbers of your own (numbers=, p_accept=)"
                expected = f"expected one of `python -m prism_jax serve --state=DIR`{needs}"
                raise ClientError(f"{error}; {expected}" if error.status == 404 else str(error)) from None

    def answer_or_withhold(self, *asked: Any, **more: Any) -> Answer:
        """What `ask` answers, and silence with its reason for what the server refuses: a host goes on either way."""
        try:
            return self.ask(*asked, **more)
        except ClientError as error:
            return Answer(False, f"silent: the gate cannot decide: {error}")

    def outcome(self, stream: str, offer: str, outcome: str, time: float | None = None) -> bool:
        """Says what became of an offer: accepted, dismissed or ignored. Returns whether the server has it now."""
        body = {"stream": stream, "offer": offer, "outcome": outcome, "time": clock.time() if time is None else time}
        with contextlib.suppress(OutageError):
            return bool(self._wire.post("/v1/outcomes", body, {}))
        return False

    def _stand_in(self, why: str) -> Answer:
        return Answer(self._speaks, f"{'offer' if self._speaks else 'silent'}: {why}")
