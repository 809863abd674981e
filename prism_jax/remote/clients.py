"""All endpoints of a job, opened together: they share the cache, the budget and the counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prism_jax.remote.cache import Cache
from prism_jax.remote.client import Client
from prism_jax.remote.config import EndpointConfig, RemoteConfig
from prism_jax.remote.tally import Tally


class Clients(NamedTuple):
    """The clients of a job by the names of their sections, and its counts."""

    by_name: dict[str, Client]
    tally: Tally


@contextlib.contextmanager
def opened(
    config: RemoteConfig, endpoints: Mapping[str, EndpointConfig], *, dry_run: bool = False
) -> Iterator[Clients]:
    """Opens the cache and a client per endpoint.

    With `dry_run` nothing is sent: each request that the cache does not answer only adds to the estimate in the tally,
    and gets an answer with an error.

    Raises:
      ValueError: if an endpoint cannot be used; the message names its section.
    """
    tally = Tally(dry=dry_run)
    with Cache(config.cache, config.budget) as cache:
        by_name = {}
        for name, endpoint in endpoints.items():
            try:
                by_name[name] = Client(endpoint, cache, tally, redact=config.redact, dry=dry_run)
            except ValueError as error:
                raise ValueError(f"{name}.{error}") from None
        yield Clients(by_name, tally)
