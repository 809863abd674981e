"""kill -9 of judging at ten random moments: no verdict is lost, none billed twice, and no partial file appears."""

import pytest
from judged_streams import bare, labelled
from killed import kill_and_finish
from separate import start
from test_judging import minds, panel

from prism_jax.labelling.judges.judging import judge_streams
from prism_jax.labelling.judges.simulated import by_model
from prism_jax.labelling.judges.votes import read_votes
from prism_jax.remote.fake import FakeEndpoint, Faults
from prism_jax.streams.jsonl import read_streams, write_streams

pytestmark = pytest.mark.slow


def judge(config, streams, votes):
    judge_streams(read_streams(streams), config, votes, label="")


def test_killed_judging_resumes_where_it_was(tmp_path):
    streams, votes = labelled(20), tmp_path / "votes.jsonl"
    write_streams(tmp_path / "streams.jsonl", bare(streams))
    faults = Faults(delay=0.05, malformed=0.1, limited=0.05)
    with FakeEndpoint(by_model(minds(streams)), faults) as endpoint:
        config = panel(endpoint.url, tmp_path, retries=5)

        def begin():
            return start(judge, config, str(tmp_path / "streams.jsonl"), str(votes))

        kill_and_finish(begin, endpoint, [votes], concurrency=3 * 8)
    with FakeEndpoint(by_model(minds(streams)), Faults(malformed=0.1)) as endpoint:
        folder = tmp_path / "whole"
        folder.mkdir()
        judge_streams(bare(streams), panel(endpoint.url, folder, retries=5), folder / "votes.jsonl", label="")
    found, whole = (list(read_votes(path)) for path in (votes, folder / "votes.jsonl"))
    assert [vote.key for vote in found] == [vote.key for vote in whole]
    assert {vote.verdict for vote in found} == {True, False}
    assert [vote.verdict for vote in found] == [vote.verdict for vote in whole]
