"""A server of decisions on a thread, for tests: its answers are those of a reader that needs no model."""

import asyncio
import dataclasses
import functools
import json
import threading
import time
import types
import urllib.error
import urllib.request

import fastapi.routing
import uvicorn.server
from fake_reader import FakeReader, exported

from prism_jax.agent.service.agents import Agents, Models
from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.app import make_app
from prism_jax.agent.service.connection import listen, make_config
from prism_jax.agent.service.door import Door
from prism_jax.agent.service.http import Limits
from prism_jax.agent.service.http import Served as OneModel
from prism_jax.agent.service.state_app import make_state_app
from prism_jax.agent.service.tokens import Tokens
from prism_jax.decision.calibration import Temperature

# Uvicorn looks ten times a second whether it shall end, and waits as long for its connections then.
often = {"sleep": lambda seconds: asyncio.sleep(seconds / 20)}
uvicorn.server.asyncio = types.SimpleNamespace(**vars(asyncio) | often)
# Most of the time of making an app goes into the same fields, one for each status of each route.
fastapi.routing.create_model_field = functools.cache(fastapi.routing.create_model_field)


def until(holds):
    """Waits until something holds, for not too long."""
    ends = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.002)


class Running:
    """An application on a thread."""

    def __init__(self, app):
        self.app = app
        self.server, listening = uvicorn.Server(make_config(app)), listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)

    def __enter__(self):
        self.thread.start()
        until(lambda: self.server.started)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()

    def ready(self):
        until(lambda: self.ask("/readyz")[0] == 200)
        return self

    def ask(self, path="/v1/decisions", body=None, method=None, **headers):
        """Status, body and headers of an answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text, error.headers


class Served(Running):
    """A server of decisions, with a reader that needs no model; `gate` holds its answers back until it is set.

    `begun` is set when it begins to answer.
    """

    def __init__(self, *, tokens=(), limits=None, load=None, name="tiny"):
        self.gate, self.begun, self.load = threading.Event(), threading.Event(), load
        self.gate.set()
        answering = Answering(FakeReader(slow=False, responses=False), exported(slow=False))
        answer = answering.answer

        def held(items):
            self.begun.set()
            assert self.gate.wait(20)
            return answer(items)

        answering.answer = held
        served = OneModel(load or (lambda: answering), (limits or Limits()).waiting)
        super().__init__(make_app(served, name, tokens=Tokens(tokens), limits=limits))

    def __enter__(self):
        super().__enter__()
        return self if self.load else self.ready()

    def __exit__(self, *_):
        self.gate.set()
        super().__exit__()

    def waiting(self):
        """How many requests wait until others are answered."""
        queues = self.app.state.prism._turns._queues.copy().values()
        return sum(not answer.done() for queue in queues for _, answer in queue.copy())


class Stateful(Running):
    """A server of an agent whose state is in a folder, with a reader that needs no model."""

    def __init__(
        self, folder, *, tokens=(), limits=None, partitions=8, reader=None, settings=None, stated=None, **options
    ):
        plain, options = exported(slow=False, responses=False), {"model": "tiny", "clock": time.time, **options}
        stated = stated or dataclasses.replace(plain, maps=dict.fromkeys(plain.maps, Temperature(1.0)))
        models = Models(reader or FakeReader(slow=False, responses=False), plain, stated, settings)
        waiting = (limits or Limits()).waiting
        door = Door(lambda: Agents(models, folder, partitions=partitions, clock=options["clock"]), folder, waiting)
        super().__init__(make_state_app(door, tokens=Tokens(tokens), limits=limits, **options))

    def __enter__(self):
        return super().__enter__().ready()
