"""Separate processes that a test may kill, forked from one server that has imported what all of them need."""

import multiprocessing

PRELOADED = (
    "prism_jax.training.loop",
    "prism_jax.experiments.paper.runner",
    "prism_jax.labelling.judges.judging",
    "prism_jax.commands.labelling",
    "prism_jax.agent.live",
    "tensorboardX",
    "openai",
)
"""Packages and their modules: the server finds nothing in a folder of tests, and keeps the list that it got first."""


def start(work, *arguments):
    """Starts `work(*arguments)`, a function of a module, in another process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=work, args=arguments)
    process.start()
    return process
