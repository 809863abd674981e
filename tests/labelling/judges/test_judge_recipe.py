"""The job of `prism_jax judge` on files: verdicts, labels and every table, without asking again."""

import dataclasses

import pytest
from judged_streams import bare, labelled, offering, panel_of, voted, votes_of

from prism_jax.commands.judging import judge, show_people, write_page
from prism_jax.labelling.judges.votes import write_votes
from prism_jax.remote.endpoints import RemoteConfig
from prism_jax.streams.jsonl import read_streams, write_streams

NAMES = ("a", "b", "c")
CONFIG = panel_of(*NAMES)
UNUSED = {"system": [], "out": None, "human": None, "against": [], "dry_run": False, "scores": None, "scores_out": None}
SETTINGS = {"ask": False, "resamples": 100, "c_fa": 1.0, "c_fn": 2.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two systems' streams, people's votes, and the verdicts of two panels."""
    folder, streams = tmp_path_factory.mktemp("judged"), labelled(12)
    for name, every in (("often", 2), ("seldom", 3)):
        system = [offering(one, lambda step, every=every: step.event % every == 0) for one in bare(streams)]
        write_streams(folder / f"{name}.jsonl", system)
    write_streams(folder / "people.jsonl", map(voted, streams[::2]))
    write_votes(folder / "votes.jsonl", votes_of(streams, dict.fromkeys(NAMES, (0.9, 0.9))))
    write_votes(folder / "others.jsonl", votes_of(streams, dict.fromkeys("def", (0.8, 0.8)), seed=9))
    return folder


def run(folder, config=CONFIG, **flags):
    files = {"streams": str(folder / "often.jsonl"), "votes": str(folder / "votes.jsonl")}
    judge(config, {**UNUSED, **SETTINGS, **files, **flags})


def test_all_tables_are_printed_and_labels_written(folder, tmp_path, capsys):
    files = {"human": [str(folder / "people.jsonl")], "system": [f"seldom={folder / 'seldom.jsonl'}"]}
    run(folder, out=str(tmp_path / "out.jsonl"), against=[str(folder / "others.jsonl")], **files)
    shown = capsys.readouterr().out
    tables = ("Agreement of two raters", "Judges' errors against people", "often, corrected for judges' errors")
    for words in (*tables, "need: ", "panel / others", "others: d / human majority", "constant judge"):
        assert words in shown, words
    steps = [step for stream in read_streams(tmp_path / "out.jsonl") for step in stream.steps]
    assert f"need: {len(steps)} labels" in shown
    assert all(len(step.votes) == 3 and step.y_need in (0.0, 1.0) for step in steps)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"out": "votes.jsonl"}, "--out: found .*votes.jsonl, the file of --votes, expected another one"),
        ({"out": "often.jsonl"}, "--out: found .*often.jsonl, the file of --streams, expected another one"),
        ({"votes": "often.jsonl"}, "--votes: found .*often.jsonl, the file of --streams, expected another one"),
        ({"out": "others.jsonl"}, "--out: found .*others.jsonl, the file of --against, expected another one"),
        ({"out": "answers"}, "--out: found .*answers, the file of --config.remote.cache, expected another one"),
        ({"votes": "answers"}, "--votes: found .*answers, the file of --config.remote.cache, expected another one"),
        ({"scores_out": "none/s.jsonl"}, "none/s.jsonl: found no folder .*none, expected an existing one"),
        ({"out": "none/o.jsonl"}, "none/o.jsonl: found no folder .*none, expected an existing one"),
    ],
)
def test_no_file_is_written_over_another(folder, flags, message):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    given = {name: str(folder / ".." / folder.name / file) for name, file in flags.items()}
    remote = RemoteConfig(str(folder / "answers"))
    with pytest.raises((ValueError, OSError), match=message):
        run(folder, dataclasses.replace(CONFIG, remote=remote), against=[str(folder / "others.jsonl")], **given)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_verdicts_on_other_questions_are_an_error(folder, tmp_path):
    write_streams(tmp_path / "new.jsonl", bare(labelled(2, seed=5)))
    with pytest.raises(ValueError, match=r"votes.jsonl: found no verdict of a, b, c on these streams, expected"):
        run(folder, streams=str(tmp_path / "new.jsonl"))
    with pytest.raises(ValueError, match=r"often.jsonl: found no vote on these streams, expected people"):
        run(folder, human=[str(folder / "often.jsonl")])
    with pytest.raises(FileNotFoundError, match=r"none.jsonl: no such file"):
        run(folder, votes=str(folder / "none.jsonl"))


def test_people_are_read_with_a_panel_or_alone_and_have_names_of_their_own(folder, tmp_path, capsys):
    paths = []
    for seed, (name, rate) in enumerate({"Ada": 0.95, "Bo": 0.9, "Cy": 0.8}.items()):
        votes = votes_of(labelled(12), {name: (rate, rate)}, seed=20 + seed)
        paths.append(str(tmp_path / f"{name}.jsonl"))
        write_votes(paths[-1], (dataclasses.replace(vote, prompt="page") for vote in votes))
    run(folder, human=paths)
    shown = capsys.readouterr().out
    for words in ("panel / human majority", "Ada / Bo", "Cy / all but Cy", "human votes", "Fleiss", "corrected"):
        assert words in shown, words
    show_people({"streams": str(folder / "often.jsonl"), "system": [], "human": paths, "resamples": 50}, 40)
    alone = capsys.readouterr().out
    assert "Ada / all but Ada" in alone and "human votes" in alone and "panel" not in alone.replace("panel  ", "")
    write_votes(tmp_path / "a.jsonl", votes_of(labelled(12), {"a": (0.9, 0.9)}))
    with pytest.raises(ValueError, match=r"--human: found people named a, as judges are"):
        run(folder, human=[str(tmp_path / "a.jsonl")])


def test_a_page_of_several_systems_is_written(folder, tmp_path, capsys):
    page = {"page_out": str(tmp_path / "p.html"), "sample": 9, "seed": 1}
    often = str(folder / "often.jsonl")
    options = {**page, "streams": often, "system": [f"seldom={folder / 'seldom.jsonl'}"]}
    write_page(options, 40)
    assert capsys.readouterr().out.startswith("9 of the ")
    first = (tmp_path / "p.html").read_bytes()
    assert not any(word in first for word in (b"often", b"seldom")), "systems are hidden"
    write_page(options, 40)
    assert (tmp_path / "p.html").read_bytes() == first
    taken = "--page_out: found .*often.jsonl, the file of --streams or --system, expected another"
    for change, message in (
        *(({"page_out": often, "streams": streams}, taken) for streams in (often, str(folder))),
        ({"system": ["often=x"]}, "--system: found 'often=x', expected NAME=PATH with a new name"),
        ({"system": [], "streams": None}, "--streams, --system: found neither, expected the streams of a system"),
        ({"sample": 10_000}, r"sample: found 10000, expected from 1 to the \d+ events"),
    ):
        with pytest.raises(ValueError, match=message):
            write_page({**options, **change}, 40)
