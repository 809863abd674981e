"""Decisions per second over HTTP: `serve` beside a bare FastAPI route, and beside llama.cpp's server on the same file.

    pip install xllamacpp==2026.10.11549
    python benchmarks/serve.py SmolLM2-135M-Instruct.Q4_1.gguf   # half an hour on two cores
    python benchmarks/serve.py exported                          # an exported student, beside the bare route alone

Each caller watches a stream of its own: a request brings its events so far with one more, and asks for need and one
offer. The bare route answers a constant to the same bytes, so the ratio says what is HTTP and what is the model.
llama.cpp gets the token ids of our template, one prompt per slot, for both sides of which prefix caches work, with as
many slots as callers up to 16; a decision is two requests there. Ours computes in float32 with the numbers of the file,
llama.cpp with activations of 8 bits. The three take turns in one run; a ratio is the median over turns, with its
quartiles. All servers and the callers share the machine's processors.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from prism_jax.streams import Candidate, Event
from prism_jax.student.prompting.template import PromptConfig, Template
from prism_jax.student.prompting.tokenizer import Tokenizer

CONTEXT, EVENTS, SLOTS = 1024, 12, 16
NAMES = ("need", "accept:Look at the failing test together?")
OFFER = Candidate(text="Look at the failing test together?")
LLAMA = """
import sys, time, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.hostnames, parameters.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
parameters.n_parallel = int(sys.argv[3])
parameters.n_ctx = int(sys.argv[4]) * parameters.n_parallel
parameters.warmup, parameters.ui, parameters.fit_params, parameters.verbosity = False, False, False, 0
server = xllamacpp.Server(parameters)
time.sleep(1e9)
"""
Ask = Callable[[http.client.HTTPConnection, str, int], None]


def text_of(stream: str, number: int) -> str:
    """An event of a stream."""
    return f"{stream}: runs test {number % 7} of the parser, and it fails in line {13 * number % 97}"


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> Any:
    """The answer to a request; RuntimeError for any status but 200."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
    return json.loads(content)


def decide(connection: http.client.HTTPConnection, stream: str, number: int) -> None:
    """One decision of a server of `/v1/decisions`."""
    events = [{"role": "user", "content": text_of(stream, place)} for place in range(number + 1)]
    questions = [{"type": "predicate", "name": name, "instructions": "?"} for name in NAMES]
    post(connection, "/v1/decisions", {"model": "m", "input": events, "questions": questions})


def decide_by_llama(template: Template, connection: http.client.HTTPConnection, stream: str, number: int) -> None:
    """One decision of llama.cpp's server: both slots. Each caller has a slot of its own, up to `SLOTS` callers."""
    events = [Event(time=0.0, text=text_of(stream, place)) for place in range(number + 1)]
    trunk = [*template.system()]
    for before, event in zip([None, *events], events, strict=False):
        trunk += template.event(event, before)
    head = template.head()
    for ids in ([*trunk, *head], [*trunk, *head, *template.leaf(OFFER)]):
        both = [[template.yes, 100], [template.no, 100]]
        post(
            connection,
            "/completion",
            {"prompt": ids, "n_predict": 1, "temperature": 1.0, "samplers": ["temperature"], "n_probs": 2}
            | {
                "post_sampling_probs": True,
                "logit_bias": both,
                "cache_prompt": True,
                "id_slot": int(stream.split("-")[1]) % SLOTS,
            },
        )


def rate(port: int, ask: Ask, callers: int, requests: int, turn: int) -> float:
    """Decisions per second of so many callers at once."""

    def call(caller: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(requests // callers):
            ask(connection, f"{turn}-{caller}-{number // EVENTS}", number % EVENTS)
        connection.close()

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(callers) as threads:
        for done in [threads.submit(call, caller) for caller in range(callers)]:
            done.result()
    return (requests // callers) * callers / (time.perf_counter() - start)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def serving(command: list[str], port: int, path: str) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a server on a port, once `path` answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + 600
            while process.poll() is None and time.monotonic() < ends:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                    connection.request("GET", path)
                    if connection.getresponse().status == 200:
                        break
                time.sleep(0.1)
            else:
                raise RuntimeError(f"{command[:3]} has ended, or is not ready")
            yield process
        finally:
            process.kill()


def serve(kind: str, path: str, port: int) -> None:
    """Serves `ours`, or the `bare` route."""
    import uvicorn

    if kind == "bare":
        import fastapi

        app = fastapi.FastAPI()
        answers = [{"type": "predicate", "name": name, "probability": 0.5} for name in NAMES]

        @app.post("/v1/decisions")
        async def constant(_: dict[str, Any]) -> dict[str, Any]:
            return {"model": "m", "answers": answers}

        @app.get("/readyz")
        async def ready() -> dict[str, str]:
            return {}
    else:
        from prism_jax.agent.exported import Exported, read_exported
        from prism_jax.agent.live import Live, LiveConfig
        from prism_jax.agent.loading import load_reader
        from prism_jax.agent.service.answering import Answering
        from prism_jax.agent.service.app import make_app
        from prism_jax.agent.service.connection import make_config
        from prism_jax.agent.service.http import Limits, Served
        from prism_jax.decision.calibration import Temperature
        from prism_jax.decision.operating_point import OperatingPoint
        from prism_jax.student.scoring.student import Student
        from prism_jax.student.weights import load_gguf

        def load() -> Answering:
            if pathlib.Path(path).is_dir():
                exported = read_exported(path)
                reader = load_reader(path, exported, context=CONTEXT, offers=64)
                reader.compile_all()
                return Answering(reader, exported)
            loaded = load_gguf(path, "float32")
            student = Student(loaded.model, loaded.params, Template(Tokenizer.load(path), PromptConfig()))
            config = LiveConfig(context=CONTEXT, batches=(1, 16), offers=64)
            live = Live(student, has_slow_pass=False, writes_responses=False, config=config)
            live.compile_all()
            maps = {"need_fast": Temperature(1.0), "accept_fast": Temperature(1.0)}
            names = dict.fromkeys(("model", "calibration", "config"), "")
            return Answering(live, Exported({}, maps, OperatingPoint(), None, None, False, names))

        app = make_app(Served(load, Limits().waiting), "m")
        return uvicorn.Server(make_config(app, port=port)).run()
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def main() -> None:
    """Measures, and prints a line per number of callers and pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="GGUF file")
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=192, help="decisions of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--serve", choices=["ours", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.file, options.port)
        return
    template = Template(Tokenizer.load(options.file), PromptConfig())

    def by_llama(connection: http.client.HTTPConnection, stream: str, number: int) -> None:
        decide_by_llama(template, connection, stream, number)

    with contextlib.ExitStack() as stack:
        ports = {}
        for kind in ("ours", "bare"):
            port, script = free_port(), str(pathlib.Path(__file__).resolve())
            command = [sys.executable, script, options.file, f"--serve={kind}", f"--port={port}"]
            stack.enter_context(serving(command, port, "/readyz"))
            ports[kind] = port
        asks: dict[str, Ask] = {"ours": decide, "bare": decide}
        if pathlib.Path(options.file).is_file():
            port = free_port()
            command = [sys.executable, "-c", LLAMA, options.file, str(port), str(SLOTS), str(CONTEXT)]
            stack.enter_context(serving(command, port, "/health"))
            ports["llama.cpp"] = port
            asks["llama.cpp"] = by_llama
        for callers in options.callers:
            rates: dict[str, list[float]] = {kind: [] for kind in asks}
            for turn in range(options.turns + 1):
                for kind in list(asks)[:: 1 if turn % 2 else -1]:
                    found = rate(ports[kind], asks[kind], callers, options.requests, turn * 1000 + callers)
                    if turn:  # the first is not counted
                        rates[kind].append(found)
            for other in list(asks)[1:]:
                quotients = [mine / theirs for mine, theirs in zip(rates["ours"], rates[other], strict=True)]
                low, middle, high = statistics.quantiles(quotients, n=4)
                print(
                    f"{callers} callers: ours {statistics.median(rates['ours']):.1f} decisions/s, {other} "
                    f"{statistics.median(rates[other]):.1f}: ratio {middle:.3g} [{low:.3g}, {high:.3g}]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
