"""Serves a student or a probe as a decision model: `python -m prism_jax serve --model=DIR [--token_file=FILE]`.

Clients of `POST /v1/decisions` ask whether help is needed (the predicate `need`) and whether an offer would be accepted
(`accept`, or `accept:TEXT`), and get calibrated probabilities (docs/decision_models.md). Without --token_file it
answers on this machine alone.
"""

from __future__ import annotations

import os
import pathlib
import socket
import sys

from absl import flags

from prism_jax.agent.exported import read_exported, with_gate
from prism_jax.agent.loading import load_reader
from prism_jax.agent.reader import AsksAgain
from prism_jax.gate import Gate
from prism_jax.runtime import command, digests, distributed
from prism_jax.runtime.command import refuse_empty

OFFERS = 256
"""Tokens of the context that are free for the offers of one request."""


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Directory of an exported model.", required=True)
    flags.DEFINE_string("name", None, "Name of the model for its clients; by default that of the directory.")
    flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; any but this machine's own needs --token_file.")
    flags.DEFINE_integer("port", 8080, "Port to listen on; 0 takes a free one.", 0, 65535)
    flags.DEFINE_string("token_file", None, "File of bearer tokens, one a line, of which a client must send one.")
    flags.DEFINE_string("gate", None, "gate.json whose maps calibrate, in place of the exported ones.")
    flags.DEFINE_integer("waiting", 256, "Most requests that wait; further ones get the status 429.", 1)
    flags.DEFINE_integer("body", 2**20, "Most bytes of a request.", 1)
    flags.DEFINE_integer("streams", 1024, "Most streams that are kept between two requests.", 1)
    flags.DEFINE_integer("context", None, "Most tokens up to the end of one decision.")
    flags.DEFINE_integer("memory", None, "Bytes for the trunks of streams.")
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Dtype of the parameters.")
    distributed.define_cache_flag()
    digests.define_flag("--model")
    refuse_empty("model", "name", "host", "token_file", "gate")


def main() -> None:
    """Serves until it is told to stop."""
    try:
        import uvicorn

        from prism_jax.service.answering import Answering
        from prism_jax.service.app import LOOPBACK, Limits, Tokens, make_app
    except ImportError as error:
        raise ValueError(f"found no library {error.name}, expected it: pip install 'prism_jax[serve]'") from error
    options = flags.FLAGS
    tokens = Tokens.read(options.token_file) if options.token_file else Tokens(())
    if not tokens and options.host not in LOOPBACK:
        raise ValueError(f"--token_file: found none with --host={options.host}, expected one, or {LOOPBACK[0]}")
    exported = read_exported(options.model, options.expect_digest)
    if options.gate:
        exported = with_gate(exported, Gate.load(options.gate))

    def load() -> Answering:
        reader = load_reader(
            options.model,
            exported,
            dtype=options.dtype,
            context=options.context,
            memory=options.memory,
            offers=OFFERS,
            compilation_cache=options.compilation_cache,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
        if isinstance(reader, AsksAgain):
            reader.warm_up(writes=False)
        else:
            reader.warm_up()
        return Answering(reader, exported, streams=options.streams)

    name = options.name or pathlib.Path(options.model).resolve().name
    app = make_app(load, name, tokens=tokens, limits=Limits(body=options.body, waiting=options.waiting))
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listening = socket.create_server((options.host, options.port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"--host, --port: {options.host}:{options.port}: {error.strerror or error}") from error
    with listening:
        quiet = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=30)
        server = uvicorn.Server(quiet)
        state, port = app.state.prism, listening.getsockname()[1]
        address = f"http://{f'[{options.host}]' if ':' in options.host else options.host}:{port}"

        def stop() -> None:
            server.should_exit = True

        def ready() -> None:
            if not server.should_exit:
                print(f"serving {name} at {address}/v1", file=sys.stderr, flush=True)

        state.on_failure = stop
        state.on_ready = ready
        server.run(sockets=[listening])
        if state.failure is not None:
            raise state.failure
        if not state.is_ready:  # it was told to stop while it loads, which nothing else ends
            os._exit(0)


if __name__ == "__main__":
    define_flags()
    command.start(main)
