"""Work in separate processes that are killed at random moments."""

import time

import numpy as np

KILLS = 10
LONGEST_WAIT = 0.15
"""Most seconds from the first request of a process to its kill."""


def kill_again_and_again(begin, endpoint, seed=0):
    """Kills ten processes, one after the other, each at a random moment after its first request.

    Args:
      begin: Starts a process.
      endpoint: The fake endpoint that the processes ask.
      seed: Seed of the moments.

    Yields:
      Nothing, after each kill.
    """
    rng, before = np.random.default_rng(seed), 0
    for _ in range(KILLS):
        process = begin()
        deadline = time.monotonic() + 60
        while endpoint.received.total() <= before and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, LONGEST_WAIT))
        process.kill()
        process.join()
        assert process.exitcode == -9, "the work must have been under way"
        before = endpoint.received.total()
        yield


def finish(begin):
    """Starts a process and waits until it has done its work."""
    process = begin()
    process.join(60)
    assert process.exitcode == 0


def kill_and_finish(begin, endpoint, outputs, concurrency):
    """Kills processes that do a job, lets the last one end it, and checks what docs/judges.md promises of kills.

    None of the outputs is there before the end, and no answer is billed twice: neither by servers that honour
    `Idempotency-Key`, as the fake endpoint does, nor, but for what was under way at a kill, by others.

    Args:
      begin: Starts a process.
      endpoint: The fake endpoint.
      outputs: Paths of what the job writes.
      concurrency: Most requests that were under way at once, over all models.
    """
    for _ in kill_again_and_again(begin, endpoint):
        assert not any(path.exists() for path in outputs)
    answered = endpoint.billed.total()
    finish(begin)
    assert max(endpoint.billed.values()) == 1
    repeated = endpoint.answered.total() - len(endpoint.answered)
    assert repeated <= KILLS * concurrency, "only what was under way at a kill is asked again"
    assert 0 < answered < endpoint.billed.total(), "the kills must have fallen into the work"
