"""The file of verdicts: what is written is read, and anything else is an error that names line and field."""

import json

import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.labelling.judges.labelling import gather
from prism_jax.labelling.judges.votes import Vote, VotesError, prompts_in, read_votes, write_votes
from prism_jax.runtime.files import writing

GOOD = {
    **{"stream": "s", "step": 0, "candidate": None, "judge": "a", "question": "0" * 64, "prompt": "official 0123"},
    **{"verdict": True, "problem": None, "model": "m-1", "request": "f" * 64, "cost": 0.5},
    "time": "2025-01-02T03:04:05+00:00",
}
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
numbers = st.integers(0, 10**6)
about = {"stream": texts, "step": numbers, "candidate": st.none() | numbers, "judge": texts, "question": digests}
asked = {"model": st.none() | texts, "request": st.none() | digests, "prompt": texts}
costs = st.floats(0, allow_nan=False, allow_infinity=False)
given_verdicts = st.builds(Vote, verdict=st.booleans(), cost=costs, **about, **asked)
votes = given_verdicts | st.builds(Vote, verdict=st.none(), problem=texts, **about)


@given(st.lists(votes, unique_by=lambda vote: vote.key))
def test_what_is_written_is_read(tmp_path_factory, given_votes):
    path = tmp_path_factory.mktemp("votes") / "v.jsonl"
    write_votes(path, given_votes)
    assert list(read_votes(path)) == given_votes


def test_one_question_may_be_asked_in_two_prompts_and_old_files_are_of_ours(tmp_path):
    path, old = tmp_path / "v.jsonl", {key: value for key, value in GOOD.items() if key != "prompt"}
    path.write_text(f"{json.dumps(old)}\n{json.dumps({**old, 'prompt': 'page', 'verdict': False})}\n")
    votes = list(read_votes(path))
    assert [vote.prompt for vote in votes] == ["ours", "page"]
    assert prompts_in(path, ["a"]) == ("ours", "page") and not prompts_in(path, ["b"])
    for prompt, verdict in (("ours", True), ("page", False), ("official 1", None)):
        assert list(gather(votes, ["a"], prompt).values()) == ([(verdict,)] if verdict is not None else [])


def test_a_second_verdict_and_a_missing_file_are_named(tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n" * 2)
    with pytest.raises(VotesError, match=r"v.jsonl:2: judge: found a second verdict of 'a' .* \(first on line 1\)"):
        list(read_votes(path))
    with pytest.raises(FileNotFoundError, match=r"none.jsonl: no such file"):
        list(read_votes(tmp_path / "none.jsonl"))


def test_a_failed_write_changes_nothing(tmp_path):
    path, vote = tmp_path / "v.jsonl", Vote(**GOOD)
    write_votes(path, [vote])
    before = path.read_bytes()
    with pytest.raises(VotesError, match="found two verdicts of 'a' on one question"):
        write_votes(path, [vote, vote])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="found no folder"):
        write_votes(tmp_path / "none" / "v.jsonl", [vote])


def test_another_command_that_begins_removes_no_file_that_is_complete(tmp_path, monkeypatch):
    path = epath.Path(tmp_path / "votes.jsonl")
    replace = type(path).replace

    def replace_while_another_begins(partial, target):
        with writing(path):
            return replace(partial, target)

    monkeypatch.setattr(type(path), "replace", replace_while_another_begins)
    write_votes(path, [])
    assert [file.name for file in path.parent.iterdir()] == ["votes.jsonl"]
