"""What our client costs beside the bare SDK, and its memory over many rows; the endpoint is a fake one on loopback.

    python benchmarks/remote.py                   # 1,000 requests at concurrency 32, with and without our client
    python benchmarks/remote.py --rows=100000     # the peak memory of our client over so many rows; minutes

The endpoint runs in a process of its own and answers at once, so both sides are bound by the processor. They alternate,
and which of them comes first alternates too. Ours redacts, hashes, looks up, reserves, sends, stores and validates;
theirs awaits `chat.completions.create` under a semaphore. A ratio is the median over turns of the quotients, with its
quartiles; processor time depends less than wall time on what else the machine does. The first turn is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import openai
import pydantic

from prism_jax.remote import jobs
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.remote.jobs import open_clients
from prism_jax.remote.requests import Message
from prism_jax.remote.structured import ask_for, schema_of

SYSTEM = "You judge whether this user would accept this proposal, now. " * 10
EVENTS = "\n".join(f'{{"event": "Opens file number {i} of the report.", "since": "{i} s"}}' for i in range(20))


class Verdict(pydantic.BaseModel):
    """What each request asks for."""

    accept: bool
    reason: str


def question(index: int) -> str:
    """The question of a row: about 1.5 kB."""
    return f"{EVENTS}\nRow {index}: would the user accept an offer of help?"


def ask_ours(url: str, count: int, concurrency: int) -> None:
    """Sends `count` requests through our client, with a new cache."""
    with tempfile.TemporaryDirectory() as folder:
        assert sum(1 for _ in verdicts(url, f"{folder}/cache.sqlite", count, concurrency)) == count


def verdicts(url: str, cache: str, count: int, concurrency: int) -> Iterator[Verdict]:
    """Asks for the verdicts of `count` rows."""
    endpoint = EndpointConfig("m", url, concurrency=concurrency, input_price=1.0, output_price=2.0, max_tokens=100)
    with open_clients(RemoteConfig(cache, budget=1000.0), {"judge": endpoint}) as clients:

        async def work(index: int) -> Verdict:
            messages = [Message("system", SYSTEM), Message("user", question(index))]
            reply = await ask_for(clients.by_name["judge"], messages, Verdict)
            assert reply.value is not None, reply.problem
            return reply.value

        yield from jobs.work_through(range(count), work, at_once=concurrency, tally=clients.tally)


def ask_theirs(url: str, count: int, concurrency: int) -> None:
    """Sends the same requests through the SDK alone."""
    schema = {"name": "Verdict", "schema": schema_of(Verdict), "strict": True}

    async def ask_all() -> None:
        turns = asyncio.Semaphore(concurrency)
        async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as sdk:

            async def ask(index: int) -> None:
                async with turns:
                    completion = await sdk.chat.completions.create(
                        model="m",
                        messages=[
                            {"role": "system", "content": SYSTEM},
                            {"role": "user", "content": question(index)},
                        ],
                        max_tokens=100,
                        temperature=0.0,
                        response_format={"type": "json_schema", "json_schema": schema},
                    )
                assert completion.choices[0].message.content

            await asyncio.gather(*(ask(index) for index in range(count)))

    asyncio.run(ask_all())


def compare(url: str, count: int, concurrency: int, turns: int) -> None:
    """Prints both sides and the ratios."""
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    took: dict[tuple[str, str], list[float]] = {(side, clock): [] for side in ("ours", "theirs") for clock in clocks}
    sides = {"ours": ask_ours, "theirs": ask_theirs}
    for turn in range(turns + 1):
        for side in sorted(sides, reverse=bool(turn % 2)):
            started = {clock: read() for clock, read in clocks.items()}
            sides[side](url, count, concurrency)
            for clock, read in clocks.items():
                took[side, clock].append((read() - started[clock]) / count * 1e3)
    print(f"{turns} turns of {count} requests at concurrency {concurrency}; milliseconds per request")
    for clock in clocks:
        ours, theirs = took["ours", clock][1:], took["theirs", clock][1:]
        low, middle, high = statistics.quantiles(
            [our_time / their_time for our_time, their_time in zip(ours, theirs, strict=True)], n=4
        )
        sides_of = f"ours {statistics.median(ours):.2f}, SDK alone {statistics.median(theirs):.2f}"
        print(f"{clock:>10}: {sides_of}, ratio {middle:.2f} ({low:.2f} to {high:.2f})")


def remember(url: str, rows: int, concurrency: int) -> None:
    """Prints the peak memory at a tenth of the rows, and at growing numbers of them."""
    marks = {rows // 10 * part for part in (1, 2, 5, 10)}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for done, _ in enumerate(verdicts(url, f"{folder}/cache.sqlite", rows, concurrency), start=1):
            if done in marks:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(f"{done:>10,} rows: {peak:.1f} MiB at most, {time.perf_counter() - started:.0f} s", flush=True)
        size = pathlib.Path(f"{folder}/cache.sqlite").stat().st_size / 2**20
        print(f"{'cache':>10}: {size:.1f} MiB")


def serve() -> None:
    """Runs the endpoint until standard input ends."""
    text = json.dumps({"accept": True, "reason": "The user has asked for it."})
    with FakeEndpoint(lambda body: text) as fake:
        print(fake.url, flush=True)
        sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--rows", type=int, default=0, help="measure memory over so many rows instead")
    parser.add_argument("--serve", action="store_true", help="only run the endpoint")
    arguments = parser.parse_args()
    if arguments.serve:
        return serve()
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        url = server.stdout.readline().strip()
        if arguments.rows:
            remember(url, arguments.rows, arguments.concurrency)
        else:
            compare(url, arguments.requests, arguments.concurrency, arguments.turns)
        server.stdin.close()


if __name__ == "__main__":
    main()
