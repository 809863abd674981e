"""The agent: reads events of live streams, decides at each whether to offer help, and says why.

    agent = Agent.load("exported")
    decision = agent.observe("ann", Event(time=12.0, text="The parser fails."))
    if decision.spoke: show(decision.response)

Each event is read once. Where the trigger fires, the slow pass thinks and replaces both signals; then the gate decides,
and only an offer generates a response, of a model that was trained to write them. Silence generates no token.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

from prism_jax.agent import loading
from prism_jax.agent.decider import Decider
from prism_jax.agent.exported import read_exported
from prism_jax.agent.reader import Reader
from prism_jax.agent.settings import AgentSettings
from prism_jax.agent.state.kept import KeptAgent, store_of_one
from prism_jax.decision.person import Population


class Agent(Decider):
    """Decides with streams in memory, and knows nobody; `load` gives one whose state is in a folder, if asked to."""

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        settings: AgentSettings | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        population: Population | None = None,
        expect_digest: str | None = None,
        **options: Any,
    ) -> Decider:
        """Loads what `export` wrote; a thread then compiles the programs of the live path, or takes those kept before.

        `expect_digest` is the SHA-256 of the directory's `digests.json`, as the export printed it; None believes the
        list. `options` are those of `prism_jax.agent.loading.load_reader`, or with `engine` those of `load_engine`.
        With the folder of a `state`, which is made where it is missing, decisions and people are kept there, and where
        the settings have `keep_texts`, streams resume; without texts, a stream of an earlier process is refused.
        Without a `state` all is in memory. `population` is what a new state assumes of people. ValueError or OSError
        names a file that cannot be used.
        """
        exported = read_exported(folder, expect_digest)
        load = loading.load_engine if "engine" in options else loading.load_reader
        with contextlib.ExitStack() as stack:
            make: Callable[[Reader], Decider] = functools.partial(cls, exported=exported, settings=settings)
            if state is not None:
                store = stack.enter_context(store_of_one(state, population))
                make = functools.partial(
                    KeptAgent,
                    exported=exported,
                    store=store,
                    settings=settings,
                    texts=settings is not None and settings.keep_texts,
                )
            agent = make(load(folder, exported, **options))
            agent.reader.warm_up()
            agent.closing = stack.pop_all()
        return agent
