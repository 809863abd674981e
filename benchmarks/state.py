"""Decisions per second and latency of the server with state, beside a bare FastAPI route with a constant.

    python benchmarks/state.py                # numbers of callers (`/v1/decide`)
    python benchmarks/state.py exported       # events, read by an exported student
    python benchmarks/state.py --plan         # what many people need: memory over time, bytes, re-reads after a start

Each caller watches a stream of its own, of a person of its own. Every decision is on the disk before its answer leaves;
the bare route answers a constant to the same bytes and keeps nothing. Both take turns in one run; a ratio is the median
over turns, with its quartiles. Servers and callers share the machine's processors, and the store lies on its disk. The
last line is a whole process each, from its start to its end: the script of docs/service.md that decides once.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from serve import free_port, post, serving, text_of


def ask(connection: http.client.HTTPConnection, reads: bool, stream: str, number: int) -> None:
    """One decision."""
    if reads:
        event = {"time": float(number), "text": text_of(stream, number), "person": stream}
        post(connection, f"/v1/streams/{stream}/events", event)
    else:
        body = {"stream": stream, "person": stream, "time": float(number), "p_need": 0.8, "p_accept": 0.3}
        post(connection, "/v1/decide", body)


def measure(port: int, reads: bool, callers: int, requests: int, turn: int) -> tuple[float, list[float]]:
    """Decisions per second of so many callers at once, and the seconds of each."""

    def call(caller: int) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = []
        for number in range(requests // callers):
            start = time.perf_counter()
            ask(connection, reads, f"{turn}-{caller}", number)
            seconds.append(time.perf_counter() - start)
        connection.close()
        return seconds

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(callers) as threads:
        found = [one for done in [threads.submit(call, caller) for caller in range(callers)] for one in done.result()]
    return len(found) / (time.perf_counter() - start), found


def measure_once(port: int, folder: str, turns: int) -> str:
    """Seconds of a process that runs the page's script, beside those of one that does nothing."""
    page = (pathlib.Path(__file__).parents[1] / "docs" / "service.md").read_text(encoding="utf-8")
    script = pathlib.Path(folder, "once.py")
    script.write_text("# once.py" + page.split("```python\n# once.py")[1].split("```")[0].replace("8000", str(port)))
    python = [sys.executable, "-I", "-S"]
    commands = {"one decision": [*python, str(script), "once", "0.8", "0.9"], "nothing": [*python, "-c", "0"]}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(turns + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first is not counted
                seconds[name].append(time.perf_counter() - start)
    parts = []
    for name, found in seconds.items():
        low, middle, high = (1000 * one for one in statistics.quantiles(found, n=4))
        parts.append(f"{middle:.0f} ms [{low:.0f}, {high:.0f}] for {name}")
    return f"a process of its own: {', '.join(parts)}"


def serve_bare(port: int) -> None:
    """Serves a constant."""
    import fastapi
    import uvicorn

    app = fastapi.FastAPI()
    constant = {"id": "s/0", "stream": "s", "person": None, "time": 0.0, "speak": False, "p_need": 0.8, "p_accept": 0.3}

    @app.post("/v1/streams/{stream}/events")
    async def events(stream: str, _: dict[str, Any]) -> dict[str, Any]:
        return constant

    @app.post("/v1/decide")
    async def decide(_: dict[str, Any]) -> dict[str, Any]:
        return constant

    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {}

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def plan(model: str | None, people: int, rounds: int, callers: int) -> None:
    """Prints the server's memory while many people come again and again, their bytes, and the cost of a cold stream."""
    with contextlib.ExitStack() as stack:
        folder, port = stack.enter_context(tempfile.TemporaryDirectory()), free_port()
        command = [sys.executable, "-m", "prism_jax", "serve", f"--state={folder}/state", f"--port={port}"]
        command += [f"--model={model}"] if model else ["--c_fa=1", "--c_fn=2"]
        command += ["--streams=256"]

        def visit(caller: int, number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            for person in range(caller, people, callers):
                ask(connection, model is not None, f"p{person}", number)
            connection.close()

        with serving(command, port, "/readyz") as server, concurrent.futures.ThreadPoolExecutor(callers) as threads:
            start = time.perf_counter()
            for number in range(rounds):
                for done in [threads.submit(visit, caller, number) for caller in range(callers)]:
                    done.result()
                if number in (0, rounds // 2, rounds - 1) or number == rounds // 4:
                    seconds = time.perf_counter() - start
                    events = (number + 1) * people
                    size = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())
                    print(
                        f"{events} events of {people} people: {events / seconds:.0f} a second, "
                        f"{resident(server.pid) / 2**20:.0f} MiB resident, {size / events:.0f} bytes on disk per event",
                        flush=True,
                    )
            server.terminate()  # the journals go with it
            server.wait()
            size = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())
            print(f"closed: {size / (rounds * people):.0f} bytes per event", flush=True)
        with serving(command, port, "/readyz"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            cold, warm = [], []
            for person in range(min(people, 200)):
                for times, number in ((cold, rounds), (warm, rounds + 1)):
                    start = time.perf_counter()
                    ask(connection, model is not None, f"p{person}", number)
                    times.append(1000 * (time.perf_counter() - start))
            print(
                f"after a start, a stream of {rounds} events: {statistics.median(cold):.1f} ms for its next decision, "
                f"then {statistics.median(warm):.1f} ms",
                flush=True,
            )


def resident(process: int) -> int:
    """Bytes of memory that a process has."""
    pages = pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def main() -> None:
    """Measures, and prints a line per number of callers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="directory of an exported student")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=1280, help="decisions of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--plan", action="store_true", help="measure what many people need")
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=30, help="events of each person")
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        serve_bare(options.bare)
        return
    if options.plan:
        plan(options.model, options.people, options.rounds, max(options.callers[:2]))
        return
    reads = options.model is not None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ours, bare = free_port(), free_port()
        command = [sys.executable, "-m", "prism_jax", "serve", f"--state={folder}/state", f"--port={ours}"]
        command += [f"--model={options.model}"] if reads else ["--c_fa=1", "--c_fn=2"]
        stack.enter_context(serving(command, ours, "/readyz"))
        script = str(pathlib.Path(__file__).resolve())
        stack.enter_context(serving([sys.executable, script, f"--bare={bare}"], bare, "/readyz"))
        for callers in options.callers:
            rates: dict[int, list[float]] = {ours: [], bare: []}
            seconds: list[float] = []
            for turn in range(options.turns + 1):
                for port in (ours, bare) if turn % 2 else (bare, ours):
                    rate, found = measure(port, reads, callers, options.requests, turn * 1000 + callers)
                    if turn:  # the first is not counted
                        rates[port].append(rate)
                        seconds += found if port == ours else []
            quotients = [mine / theirs for mine, theirs in zip(rates[ours], rates[bare], strict=True)]
            low, middle, high = statistics.quantiles(quotients, n=4)
            cuts = statistics.quantiles(seconds, n=100)
            p50, p95, p99 = (1000 * cuts[place - 1] for place in (50, 95, 99))
            print(
                f"{callers} callers: {statistics.median(rates[ours]):.0f} decisions/s, P50 {p50:.1f} ms, "
                f"P95 {p95:.1f} ms, P99 {p99:.1f} ms; of the bare route's rate {middle:.3g} [{low:.3g}, {high:.3g}]",
                flush=True,
            )
        if not reads:
            print(measure_once(ours, folder, 8 * options.turns))


if __name__ == "__main__":
    main()
