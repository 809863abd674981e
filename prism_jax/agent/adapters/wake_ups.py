"""Made-up days of a scheduler, on a server of yours: who wakes 27 times a day, and is right to speak once.

    python -m prism_jax serve --state=state --c_fa=1 --c_fn=1 &
    python -m prism_jax.agent.adapters.wake_ups --url=http://localhost:8000

27 wake-ups, of which 26 spoke where silence was right, are the counts of one publicly reported thread
(openclaw/openclaw#142588); times, order, probabilities and later days are made up. The person dismisses each of the 26
and accepts the one. A host that knows nothing states the same p_accept at each wake-up, one that knows something states
more at the right one, and each learns from the outcomes alone.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Iterator

from prism_jax.agent.adapters.client import Client, define_server_flags, token_of
from prism_jax.agent.adapters.heartbeat import Heartbeat

WAKE_UPS, RIGHT = 27, 13
"""Wake-ups of a day, and the number of the one at which speaking is right."""
HOSTS = {"knows nothing": (0.6, 0.6), "knows something": (0.6, 0.9)}
"""What hosts state as p_accept where silence is right, and where speaking is."""


def days_of(client: Client, wrong: float, right: float, name: str, days: int = 5) -> Iterator[tuple[int, int]]:
    """Messages of each day where silence was right, and where speaking was."""
    beats = Heartbeat(client, ignored_after=3600.0)
    for day in range(days):
        spoken = [0, 0]
        for number in range(WAKE_UPS):
            time, wanted = 86400.0 * day + 1800.0 * number, number == RIGHT
            asked = {"p_accept": right if wanted else wrong, "key": f"{day}/{number}"}
            answer = beats.wake(name, f"wake-up {number}", person=name, time=time, **asked)
            if answer.p_accept is None:
                raise ConnectionError(answer.reason)
            if answer.speak:
                spoken[wanted] += 1
                beats.reply(name, "accepted" if wanted else "dismissed", time + 60.0, person=name)
        yield spoken[0], spoken[1]


def main(arguments: list[str] | None = None) -> None:
    """Prints a row per day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    define_server_flags(parser)
    parser.add_argument("--days", type=int, default=5, help="number of days")
    given = parser.parse_args(arguments)
    run = uuid.uuid4().hex[:8]  # a person of their own, so that a run knows nothing of another one
    for host, (wrong, right) in HOSTS.items():
        print(f"a host that {host}: spoke where silence was right (of 26), where speaking was (of 1)")
        try:
            client = Client(given.url, token_of(given))
            for day, spoken in enumerate(days_of(client, wrong, right, f"{run} {host}", given.days), 1):
                print(f"  day {day}: {spoken[0]:2d}, {spoken[1]}")
        except (OSError, ValueError) as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
