"""Judging in a separate process, for tests that kill it; forked from a server that has imported everything."""

import multiprocessing


def start(config, streams, votes):
    """Starts `judge_streams` in another process.

    Args:
      config: The panel.
      streams: File of streams.
      votes: File of verdicts.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["prism_jax.judges.judging", "openai"])
    process = context.Process(target=_judge, args=(config, str(streams), str(votes)))
    process.start()
    return process


def _judge(config, streams, votes):
    from prism_jax.judges.judging import judge_streams
    from prism_jax.streams.jsonl import read_streams

    judge_streams(read_streams(streams), config, votes, label="")
