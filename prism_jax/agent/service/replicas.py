"""Replicas of a model on several machines, without state, by Ray Serve: as many as the requests under way need.

Ray's own HTTP has no bounds on what comes before a body, and knows no tenants, so a server of ours stands on every
machine in its place and asks the replicas through Ray.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ray
import uvicorn
from ray import serve
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from prism_jax.agent.service.answering import Answering
from prism_jax.agent.service.app import make_app
from prism_jax.agent.service.cluster import Actor
from prism_jax.agent.service.connection import listen, make_config
from prism_jax.agent.service.divided import LostError
from prism_jax.agent.service.form import Answered, Asked
from prism_jax.agent.service.http import BATCH, ApiError, Limits, Served
from prism_jax.agent.service.tokens import Tokens
from prism_jax.agent.service.turns import Turns

LOOK_SECONDS = 5.0
"""How often a machine that has joined meanwhile is looked for."""
START_SECONDS = 60.0
"""How long the servers before the replicas may take to stand."""
_TRIES = 3
"""How often a request is sent to a replica, each time where one was lost."""


class Replica:
    """A model in a process of its own."""

    def __init__(self, load: Callable[[], Answering], waiting: int) -> None:
        self._turns: Turns[Asked, Answered] = Turns(load().answer, most=BATCH, waiting=waiting)
        self._has_begun = False

    async def ask(self, item: Asked, caller: str) -> Answered:
        """The answer to a request in its turn; raises what `Turns.ask` raises."""
        if not self._has_begun:  # on the event loop of requests
            self._has_begun = True
            self._turns.start()
        return await self._turns.ask(item, caller)


class Replicated(Served[Asked, Answered]):
    """Takes requests to the replicas."""

    def __init__(self, handle: Any) -> None:
        super().__init__(None)
        self._handle = Actor(handle)

    async def do(self, item: Asked, caller: str = "") -> Answered:
        """See `Served.do`."""
        for _ in range(_TRIES):
            with contextlib.suppress(LostError):  # a replica was lost, which has changed nothing
                answer: Answered = await self._handle.call("ask", item, caller)
                return answer
        raise ApiError(503, "found no replica that answers, expected one; try again")


class Front:
    """A server on a machine of the cluster, before the replicas."""

    def __init__(self, handle: Any, name: str, tokens: Tokens, limits: Limits, host: str, port: int) -> None:
        self._socket = listen(host, port)
        app = make_app(Replicated(handle), name, tokens=tokens, limits=limits)
        self._server = uvicorn.Server(make_config(app, timeout_graceful_shutdown=30))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def stop(self) -> None:
        """Ends after the requests under way."""
        self._server.should_exit = True
        self._thread.join()


def run_replicas(
    load: Callable[[], Answering],
    name: str,
    *,
    tokens: Tokens,
    limits: Limits,
    least: int,
    most: int,
    gpus: float,
    host: str,
    port: int,
    on_ready: Callable[[int], None],
    report: Callable[[str], None],
) -> None:
    """Serves `POST /v1/decisions` from `least` to `most` replicas until it is told to stop.

    `load` is called in each replica, which takes requests when it is loaded and answers up to `BATCH` of them together;
    `gpus` are those of one replica, `on_ready` is told the port, and `report` of machines without a server. Ray is
    started by the caller.

    Raises:
      ValueError: if no server can listen.
    """
    replica: Any = serve.deployment(
        Replica,
        name="model",
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        logging_config={"enable_access_log": False},
        max_ongoing_requests=2**16,  # more than ever wait: each replica refuses by itself, in turns
        autoscaling_config={"min_replicas": least, "max_replicas": most, "target_ongoing_requests": BATCH},
    )
    serve.start(proxy_location="Disabled")
    handle = serve.run(replica.bind(load, limits.waiting), name=name, route_prefix=None)
    fronts = Fronts([handle, name, tokens, limits, host, port], report)
    try:
        on_ready(fronts.look(START_SECONDS)[0])
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        while not stop.wait(LOOK_SECONDS):
            fronts.look()
    finally:
        fronts.stop()
        serve.delete(name)


class Fronts:
    """The servers on the machines of the cluster, one on each."""

    def __init__(self, arguments: Sequence[Any], report: Callable[[str], None]) -> None:
        """Of the arguments of `Front`; `report` is told of a machine where none can stand, which is tried again."""
        self._arguments, self._report = arguments, report
        self._own: dict[str, tuple[Any, Any]] = {}  # by machine: the server, and where it will listen

    def look(self, seconds: float = 0.0) -> list[int]:
        """Puts a server on every machine that has none; returns the ports of those that stand within so many seconds.

        Raises:
          ValueError: if seconds were given, and none stands.
        """
        for node in [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] not in self._own]:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            front = ray.remote(Front).options(num_cpus=0, max_restarts=-1, scheduling_strategy=there)
            actor: Any = front.remote(*self._arguments)
            self._own[node] = actor, actor.port.remote()
        places = [place for _, place in self._own.values()]
        ray.wait(places, num_returns=len(places), timeout=seconds)
        ports, failures = list[int](), list[str]()
        for node, (_, place) in list(self._own.items()):
            try:
                ports.append(ray.get(place, timeout=0))
            except ray.exceptions.GetTimeoutError:  # it may yet stand
                continue
            except ray.exceptions.RayError as error:
                del self._own[node]
                failures.append(f"no server stands on the machine {node}: {str(error).strip().splitlines()[-1]}")
        if seconds and not ports:
            raise ValueError(failures[0] if failures else f"no server stands on any machine within {seconds:g} s")
        for words in failures:
            self._report(f"{words}; it is tried again")
        return ports

    def stop(self) -> None:
        """Ends all of them after the requests under way."""
        ends = [front.stop.remote() for front, _ in self._own.values()]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=40)
