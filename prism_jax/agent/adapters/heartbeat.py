"""Schedulers: who is woken asks before it speaks, and says later what became of it.

    python -m prism_jax.agent.adapters.heartbeat --url=http://localhost:8000 --port=8001 --ignored_after=3600 &
    curl -s localhost:8001/wake -d '{"stream": "mail", "message": "3 new mails", "p_accept": 0.4, "key": "job-7"}'
    curl -s localhost:8001/reply -d '{"stream": "mail"}'     # the person has answered: accepted; or /dismiss

Of several people, both name the `person`, who has a stream of their own in the one that is named. A message that nobody
answered within the stated time counts as ignored. What waits for an answer is in memory: after a restart it has no
outcome, which is no answer and teaches nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import sys
import time as clock
from typing import Any

from prism_jax.agent.adapters.client import Answer, Client, ClientError, define_server_flags, stream_of, token_of

MOST_CLOSED = 10_000
"""Newest offers with an outcome that are remembered: a wake-up that comes again does not open them anew."""


class Heartbeat:
    """Decisions at wake-ups, and the outcomes of what was said. Times are in seconds; None is now."""

    def __init__(self, client: Client, ignored_after: float) -> None:
        """A message without an answer within `ignored_after` seconds counts as ignored.

        ClientError where the server has no state, or does not take the token.
        """
        client.check(stated=True)
        self._client, self._after = client, ignored_after
        self._open: dict[str, tuple[str, float]] = {}  # the stream of each offer, and when it was made, oldest first
        self._closed: dict[str, None] = {}  # the newest offers that have an outcome

    def wake(
        self, stream: str, message: str, *, person: str | None = None, time: float | None = None, **asked: Any
    ) -> Answer:
        """Whether to say a message now; not, where the server refuses to decide. `asked` goes to `Client.ask`."""
        self.settle(time)
        stream = stream_of(person, stream)
        answer = self._client.answer_or_withhold(stream, message, person=person, time=time, **asked)
        if answer.offer is not None and answer.offer not in self._closed:
            self._open.setdefault(answer.offer, (stream, clock.time() if time is None else time))
        return answer

    def reply(
        self, stream: str, outcome: str = "accepted", time: float | None = None, *, person: str | None = None
    ) -> bool:
        """The person answered the stream's newest message. Returns whether one was open, and the server has it now."""
        self.settle(time)
        mine = [offer for offer, (name, _) in self._open.items() if name == stream_of(person, stream)]
        return bool(mine) and self._became(mine[-1], outcome, time)

    def settle(self, time: float | None = None) -> None:
        """Counts as ignored what nobody answered in time."""
        now = clock.time() if time is None else time
        for offer, (_, made) in list(self._open.items()):
            if now - made >= self._after and not self._became(offer, "ignored", time) and offer in self._open:
                return  # a server that gives no answer is waited for once, and not once for each offer

    def _became(self, offer: str, outcome: str, time: float | None) -> bool:
        stream, made = self._open[offer]
        now = max(clock.time(), made) if time is None else time  # a clock may jump back
        done = gone = False
        try:
            done = self._client.outcome(stream, offer, outcome, now)
        except ClientError as error:  # it has another outcome already, or is gone with its stream
            gone = error.status in (409, 422)
        if not (done or gone):  # the next call says it again
            return False
        del self._open[offer]
        self._closed[offer] = None
        if len(self._closed) > MOST_CLOSED:
            del self._closed[next(iter(self._closed))]
        return done


class _Handler(http.server.BaseHTTPRequestHandler):
    beats: Heartbeat
    timeout = 2.0  # seconds without a byte after which who connected is cut off, since others wait

    def do_POST(self) -> None:
        """Answers /wake, /reply and /dismiss."""
        try:
            if "Origin" in self.headers:
                raise ValueError("Origin: found one, expected none: a page in a browser may not ask")
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if self.path == "/wake":
                status, found = 200, self.beats.wake(**asked)._asdict()
            else:
                outcome = {"/reply": "accepted", "/dismiss": "dismissed"}[self.path]
                status, found = 200, {"taken": self.beats.reply(**asked, outcome=outcome)}
        except (ValueError, TypeError, KeyError) as error:
            status, found = 422, {"error": f"{type(error).__name__}: {error}"}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())


class _Server(http.server.HTTPServer):
    def service_actions(self) -> None:
        """Settles what nobody answered, twice a second."""
        _Handler.beats.settle()


def main(arguments: list[str] | None = None) -> None:
    """Answers a scheduler on this machine until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    define_server_flags(parser)
    parser.add_argument("--port", type=int, default=8001, help="port to listen on")
    parser.add_argument("--ignored_after", type=float, default=3600.0, help="seconds after which silence is an answer")
    given = parser.parse_args(arguments)
    try:
        _Handler.beats = Heartbeat(Client(given.url, token_of(given)), given.ignored_after)
    except ValueError as error:
        sys.exit(f"error: {error}")
    try:
        server = _Server(("127.0.0.1", given.port), _Handler)
    except (OSError, OverflowError) as error:
        sys.exit(f"error: --port: found {given.port}, which cannot be listened on ({error}), expected a free one")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
