"""Replicas of a model on several machines, without state, by Ray Serve: as many as the requests under way need."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import fastapi
from ray import serve

from prism_jax.service.answering import Answering
from prism_jax.service.app import make_app
from prism_jax.service.http import BATCH, Limits
from prism_jax.service.tokens import Tokens


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
    on_ready: Callable[[], None],
) -> None:
    """Serves `POST /v1/decisions` from `least` to `most` replicas until it is told to stop.

    `load` is called in each replica, which takes requests when it is loaded and answers up to `BATCH` of them together;
    `gpus` are those of one replica. Ray is started by the caller.
    """

    def build() -> fastapi.FastAPI:
        answering = load()
        return make_app(lambda: answering, name, tokens=tokens, limits=limits)

    replica = serve.deployment(
        serve.ingress(build)(),
        name="model",
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        max_ongoing_requests=limits.waiting,
        autoscaling_config={"min_replicas": least, "max_replicas": most, "target_ongoing_requests": BATCH},
    )
    serve.start(http_options={"host": host, "port": port})
    serve.run(replica.bind(), name=name)
    on_ready()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    serve.delete(name)
