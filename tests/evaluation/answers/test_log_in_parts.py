"""A log says the same however its rows are divided into parts, and in bins what it says without, within bounds."""

import functools
import json

import forked
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from in_parts import ROLES, in_parts, leaves, simulated
from sklearn.metrics import roc_auc_score

from prism_jax.decision.score_maps import Scale
from prism_jax.evaluation.answers import labelled, log_files
from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.findings import Question
from prism_jax.evaluation.answers.labelled import Labelled, Placements
from prism_jax.evaluation.merged import states
from prism_jax.runs import answers, sharded


@pytest.fixture(autouse=True)
def few_folds(monkeypatch):
    for module in ("parts", "log_scores"):
        monkeypatch.setattr(f"prism_jax.evaluation.answers.{module}.FOLDS", 3)


in_memory = functools.partial(in_parts, most=None)


def same(found, expected, tolerance):
    """Floats but for rounding; where two predictions are equal but for rounding, there may be no interval."""
    if isinstance(expected, float) or isinstance(found, float):
        return (found or 0.0) == pytest.approx(expected or 0.0, rel=tolerance, abs=tolerance)
    return found == expected


def check_in_bins(found, expected, tolerance, end_of_interval=0.02):
    """AUROC is within its bound, and so are its ends, nearly; all else is equal, integers to the last digit."""
    bounds = found.pop("bounds")
    assert "bounds" not in expected
    found, expected = dict(leaves(found)), dict(leaves(expected))
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        if "auroc" in path:
            bound = bounds[f"{path.split('.')[2]}.auroc"]
            nearness = bound + 1e-9 if path.endswith("value") else min(end_of_interval, bound + 0.0005)
            assert found[path] == pytest.approx(value, abs=nearness), path
        else:
            assert same(found[path], value, tolerance), (path, found[path], value)


def check_close(found, expected):
    """Equal but for rounding, and integers to the last digit."""
    found, expected = dict(leaves(found)), dict(leaves(expected))
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert same(found[path], value, 1e-6), (path, found[path], value)


LOGGED = "person=who,time=at,accepted=took_shown,logged=shown"
CASES = ((f"{ROLES},score=p,group=where", {}), ("person=who,accepted=p>=0.5", {}))
MORE = (
    (f"{ROLES},score=said", {}),
    (f"{ROLES},score=points,answered=later", {}),
    (f"{LOGGED},score=p,propensity=share,group=where", {"weighted": True}),
    (f"{LOGGED},score=points,propensity=share", {}),
    (f"{LOGGED},score=p", {"shown_only": True}),
)


@pytest.mark.parametrize(
    ("roles", "options"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]
)
def test_neither_parts_nor_bins_change_a_number(tmp_path, small_parts, monkeypatch, capsys, roles, options):
    table = simulated()
    if roles == "person=who,accepted=p>=0.5":
        table = table.drop_columns("p").append_column("p", pa.array(np.random.default_rng(1).random(len(table))))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=90)
    expected = in_memory(tmp_path / "log.parquet", roles, tmp_path / "memory", **options)
    today = expected.pop("today", None)  # costs beside today's are those of a log in memory
    printed = capsys.readouterr().out
    found = in_parts(tmp_path / "log.parquet", roles, tmp_path / "parts", **options)
    assert json.loads((tmp_path / "parts" / "acceptance_log.json").read_text()) == found
    beside = found.pop("today", None)
    assert (beside is None) == (today is None) and "all rows in memory" in str(beside or "all rows in memory")
    assert (("group=" in roles) == ("groups" in found)) and len(found.get("groups", [0] * 4)) == 4
    check_close(found, expected)
    again = capsys.readouterr().out.replace(str(tmp_path / "parts"), str(tmp_path / "memory"))
    assert printed.split("How people differ")[1].split() == again.split("How people differ")[1].split()
    monkeypatch.setattr(labelled, "MOST_DISTINCT", 50)
    binned = in_parts(tmp_path / "log.parquet", roles, tmp_path / "bins", **options)
    binned.pop("today", None)
    check_in_bins(binned, expected, 2e-5)
    assert "AUROC comes from histograms" in " ".join(capsys.readouterr().out.split())
    assert ("exactly 0 or 1: " in printed) == ("exactly 0 or 1: " in again) == ("said" in roles)
    assert not (tmp_path / "parts" / ".unfinished").exists()


@pytest.mark.slow
def test_one_persons_days_stand_in_the_place_of_people(tmp_path, small_parts, capsys):
    """The files of a person, one of them bad, say the same as one file."""
    table, roles = simulated(people=1), "person=who,time=at,accepted=took_shown,score=p,logged=shown,propensity=share"
    pq.write_table(table, tmp_path / "log.parquet")
    expected = in_memory(tmp_path / "log.parquet", roles, tmp_path / "memory")
    expected.pop("today")
    (tmp_path / "files").mkdir()
    for i in range(3):
        pq.write_table(table.slice(200 * i, 200), tmp_path / "files" / f"{i}.parquet")
    (tmp_path / "files" / "bad.csv").write_text("who\nme\n")
    found = in_parts(tmp_path / "files", roles, tmp_path / "parts", skip_bad=True)
    assert set(found.pop("left_out")) == {str(tmp_path / "files" / "bad.csv")} and found["log"]["days"] == 12
    found.pop("today", None)
    check_close(found, expected)
    with pytest.raises(LogError, match=r"found answers of 1 person, .* by the days that time=COLUMN tells"):
        in_parts(tmp_path / "log.parquet", roles.replace("time=at,", ""), tmp_path / "untimed")


@pytest.mark.parametrize("most", [3, states.MOST_KEPT])
@pytest.mark.slow
def test_how_rows_are_divided_changes_rounding_only(tmp_path, monkeypatch, most):
    """1, 2, 7 and 64 parts, of which some are empty; rows of all people in every file; CSV and Parquet."""
    monkeypatch.setattr(states, "MOST_KEPT", most)  # beyond it, intervals are those of weights hashed from people
    table, roles = simulated(), f"{ROLES},score=p"
    pq.write_table(table, tmp_path / "log.parquet")
    found = []
    for rows in (600, 300, 86, 10):
        monkeypatch.setattr(answers, "PART_ROWS", rows)
        found.append(in_parts(tmp_path / "log.parquet", roles, tmp_path / f"of {rows}"))
    monkeypatch.setattr(log_files, "CHUNK_ROWS", 50)
    for i in range(4):
        part = table.slice(150 * i, 150)
        name = tmp_path / "files" / f"{i}"
        name.parent.mkdir(exist_ok=True)
        if i % 2:
            pa.csv.write_csv(part, name.with_suffix(".csv"))
        else:
            pq.write_table(part, name.with_suffix(".parquet"), row_group_size=11)
    found.append(in_parts(tmp_path / "files", roles, tmp_path / "of files"))
    for other in found[1:]:
        check_close(other, found[0])


def test_auroc_of_histograms_is_within_its_bound(monkeypatch):
    rng = np.random.default_rng(0)
    for spread in (1e-5, 1e-3, 1.0):  # of values, beside bins of 6e-4
        z, y, weight = rng.normal(0, spread, 500), (rng.random(500) < 0.4) * 1.0, rng.uniform(0.2, 3, 500)
        z += spread * y
        exact = roc_auc_score(y, z, sample_weight=weight)
        assert Placements.of(Labelled.of(z, y, weight, Scale())).auroc == pytest.approx(exact, abs=1e-12)
        with monkeypatch.context() as few:
            few.setattr(labelled, "MOST_DISTINCT", 100)
            found = Placements.of(Labelled.of(z, y, weight, Scale(0.0, 1.0)))
        assert abs(found.auroc - exact) <= found.bound + 1e-12
        assert found.bound < 0.1 or spread < 1e-3
    monkeypatch.setattr(labelled, "MOST_DISTINCT", 0)
    equal = Placements.of(Labelled.of(np.zeros(500), y, weight, Scale(0.0, 1.0)))
    assert (equal.auroc, equal.bound) == (pytest.approx(0.5), 0.0)


@pytest.mark.parametrize(
    ("change", "roles", "expected"),
    [
        ({"took": "maybe"}, ROLES, "row 352, column 'took': found a text of 5 characters"),
        ({"at": "2025-01-31T09:30:00Z"}, ROLES, "row 352, column 'at': found a text of 20 characters"),
        ({"later": "3"}, f"{ROLES},answered=later", "row 352, column 'later': found an answer"),
        ({}, "person=who,accepted=took==9", "answers that all rejected the offer"),
        ({}, "person=who,time=at,accepted=took_shown,logged=shown", "offers that were not made and no propensity"),
    ],
)
def test_rows_of_errors_are_counted_through_all_chunks(tmp_path, small_parts, change, roles, expected):
    """Nothing is kept of a log that is refused."""
    columns = {name: list(map(str, column.to_pylist())) for name, column in zip(*columns_of(simulated()), strict=True)}
    for name, text in change.items():
        columns[name][350] = text
    pa.csv.write_csv(pa.table(columns), tmp_path / "log.csv")
    with pytest.raises(ValueError, match=expected):
        in_parts(tmp_path / "log.csv", roles, tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("missing", [pytest.param(-999.0, marks=pytest.mark.slow), 9999.0])
def test_scores_far_from_the_others_change_nothing_else_in_bins(tmp_path, small_parts, monkeypatch, capsys, missing):
    """Such as a large number in place of a missing score, of which Platt's map says 0 or 1 to the last digit."""
    table = simulated()
    points = table["points"].to_numpy(zero_copy_only=False).copy()
    points[[7, 100]] = missing
    pq.write_table(table.set_column(4, "points", pa.array(points, from_pandas=True)), tmp_path / "log.parquet")
    roles = f"{ROLES},score=points"
    expected = in_memory(tmp_path / "log.parquet", roles, tmp_path / "memory")
    monkeypatch.setattr(labelled, "MOST_DISTINCT", 50)
    check_in_bins(in_parts(tmp_path / "log.parquet", roles, tmp_path / "parts"), expected, 1e-4, end_of_interval=0.05)


def test_people_without_a_score_are_not_compared_on_it(tmp_path, small_parts, capsys):
    table = simulated()
    scored = np.isin(table["who"].to_numpy(zero_copy_only=False), [f"person {i}" for i in range(4)])
    table = table.set_column(3, "p", pa.array(np.where(scored, table["share"].to_numpy(), np.nan), from_pandas=True))
    pq.write_table(table, tmp_path / "log.parquet")
    found = in_parts(tmp_path / "log.parquet", f"{ROLES},score=p", tmp_path / "parts")
    assert found["where_scored"]["difference"]["low"] is None


@pytest.mark.slow
def test_another_division_of_the_same_files_starts_anew(tmp_path, small_parts, monkeypatch):
    """A bad file that is gone when a killed run goes on may leave its rows in other parts."""
    pq.write_table(simulated(), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("who,at,took,p\n" + "x,1,1,0.5\n" * 400 + "x,1\n")
    state_of, read = sharded.state_of, []

    def cut(part, work):
        read.append(part)
        if len(read) == 3:
            raise KeyboardInterrupt
        return state_of(part, work)

    monkeypatch.setattr(sharded, "_SECONDS", 0.0)
    monkeypatch.setattr(sharded, "state_of", cut)
    roles = f"{ROLES},score=p"
    with pytest.raises(KeyboardInterrupt):
        in_parts(tmp_path / "[ab].*", roles, tmp_path / "out", skip_bad=True)
    monkeypatch.setattr(sharded, "state_of", state_of)
    (tmp_path / "b.csv").unlink()
    again = in_parts(tmp_path / "[ab].*", roles, tmp_path / "out", skip_bad=True)
    assert again == in_parts(tmp_path / "a.parquet", roles, tmp_path / "fresh")


def test_what_a_study_needs_and_does_not_find(tmp_path, small_parts):
    table = simulated().append_column("none", pa.nulls(600, pa.float64()))
    pq.write_table(table.append_column("shown_to", table["who"]), tmp_path / "log.parquet")
    roles = f"{ROLES},score=none"
    with pytest.raises(LogError, match="score: found values on no offer, or of too few people"):
        in_parts(tmp_path / "log.parquet", roles, tmp_path / "out")
    with pytest.raises(LogError, match="found no propensity, expected propensity=COLUMN"):
        in_parts(tmp_path / "log.parquet", ROLES, tmp_path / "out", weighted=True)
    with pytest.raises(LogError, match="--shown_only: found no role logged"):
        in_parts(tmp_path / "log.parquet", ROLES, tmp_path / "out", shown_only=True)
    with pytest.raises(LogError, match="column 'who': found no row with the text 'persn 1'"):
        in_parts(tmp_path / "log.parquet", "person=shown_to,accepted=who==persn 1", tmp_path / "out")
    data = b"who,took,more\n" + b"x,1,fine\n" * 300_000 + b"y,0,caf\xe9\n"
    (tmp_path / "latin.csv").write_bytes(data)
    with pytest.raises(LogError, match=rf"found byte 0xe9 at {len(data) - 2}, expected UTF-8"):
        in_parts(tmp_path / "latin.csv", "person=who,accepted=took", tmp_path / "out")


def columns_of(table):
    return table.column_names, table.columns


def test_times_of_one_kind_in_all_chunks(tmp_path, small_parts):
    moments = [f"2025-01-{1 + i // 50:02d}T09:{i % 50:02d}:00" for i in range(600)]
    table = simulated().set_column(1, "at", [moments[:300] + [f"{moment}Z" for moment in moments[300:]]])
    pa.csv.write_csv(table, tmp_path / "log.csv")
    with pytest.raises(LogError, match=r"row 302, column 'at': .*a time zone on all rows or on none"):
        in_parts(tmp_path / "log.csv", ROLES, tmp_path / "out")
    for i in range(2):
        pa.csv.write_csv(table.slice(300 * i, 300), tmp_path / f"part-{i}.csv")
    with pytest.raises(LogError, match=r"part-1\.csv, row 2, column 'at': .*a time zone on all rows or on none"):
        in_parts(tmp_path / "part-*.csv", ROLES, tmp_path / "out")


@pytest.mark.slow
def test_bad_files_are_left_out_where_asked(tmp_path, small_parts, capsys):
    """Nothing of a file that cannot be read to its end is kept, not even the numbers of its people."""
    table, roles = simulated(), f"{ROLES},score=p,group=where"
    (tmp_path / "log").mkdir()
    pa.csv.write_csv(table.slice(0, 300), tmp_path / "log" / "a.csv")
    pq.write_table(table.slice(300), tmp_path / "log" / "c.parquet")
    expected = in_parts(tmp_path / "log", roles, tmp_path / "good")
    strangers = [f"stranger {i}" for i in range(300)]
    bad = table.slice(0, 300).set_column(0, "who", [strangers])
    pa.csv.write_csv(bad, tmp_path / "log" / "b.csv")
    with (tmp_path / "log" / "b.csv").open("ab") as file:
        file.write(b"1,2\n")
    with pytest.raises(LogError, match=r"b\.csv.*found 2 values, expected 11"):
        in_parts(tmp_path / "log", roles, tmp_path / "out")
    capsys.readouterr()
    found = in_parts(tmp_path / "log", roles, tmp_path / "out", skip_bad=True)
    assert list(found.pop("left_out")) == [str(tmp_path / "log" / "b.csv")]
    check_close(found, expected)
    assert "left out: 1 of 3 files" in capsys.readouterr().out
    (tmp_path / "log" / "a.csv").unlink()
    (tmp_path / "log" / "c.parquet").write_bytes(b"PAR1")
    with pytest.raises(LogError, match="found no file that can be read among 2"):
        in_parts(tmp_path / "log", roles, tmp_path / "out", skip_bad=True)


def test_the_command_says_which_way_it_goes(tmp_path, monkeypatch):
    """Several files and --runner=ray are read in parts, which have no context and write no scores."""
    pq.write_table(simulated(), tmp_path / "log.parquet")
    pq.write_table(simulated(1), tmp_path / "more.parquet")
    base = ("prism_jax", "evaluate", f"--columns={ROLES},score=p", "--workdir=out")
    done = forked.run(*base, "--scores=*.parquet", "--workers=1", cwd=tmp_path)
    assert done.returncode == 0 and "Is the score a probability" in done.stdout, done.stderr
    done = forked.run(*base, "--scores=*.parquet", "--context=share", cwd=tmp_path)
    assert done.returncode == 1 and "found --context with a log that is read part by part, expected" in done.stderr


def test_rows_of_context_are_counted_without_the_lines_of_their_texts(tmp_path, monkeypatch):
    table = simulated()
    pq.write_table(table, tmp_path / "log.parquet")
    texts = pa.array(["a text\nof two lines"] * len(table))
    pa.csv.write_csv(table.append_column("text", texts), tmp_path / "log.csv")
    monkeypatch.setattr(answers, "MOST_CONTEXT_ROWS", 599)
    for name in ("log.parquet", "log.csv"):
        with pytest.raises(LogError, match=rf"{name}: found --context with 600 rows, expected at most 599"):
            answers.evaluate_log(tmp_path / name, parse_columns(ROLES), tmp_path, Question(1.0, 2.0, ["share"]))
