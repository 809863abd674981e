"""The paper's tables of scores that are read part by part: the numbers of the same scores in memory."""

import itertools
import math
import re

import numpy as np
import pytest
from in_parts import write
from paper_study import ON_SCORES, SETTINGS, columns, made
from synthetic_scores import make_columns
from test_merged import of_acceptance_alone, parts_of, people_in_folds, with_candidates

from prism_jax.evaluation import protocol, splits
from prism_jax.evaluation.merged import histograms, running, states
from prism_jax.experiments.paper import case_study, drawing, in_parts, registry
from prism_jax.experiments.paper.sheet import Number
from prism_jax.experiments.paper.study import PAPER, IntervalSettings, SkippedError, Study
from prism_jax.scores import Scores, write_scores

COUNTED = ("recall", "precision", "accuracy", "f1", "slow_rate", "flip_rate", "tokens", "only_first", "only_second")
"""Numbers that follow from counts alone."""
LOG_RATIO = histograms.LOG_RATIO
TABLES = {
    "slow pass and tokens": columns,
    "several candidates": lambda: with_tokens(with_candidates(2)),
    "no need": lambda: with_tokens(of_acceptance_alone(8)),
    "soft labels": lambda: columns(slow=False) | {"y_accept": np.random.default_rng(1).random(288)},
    "weights": lambda: with_tokens(make_columns(seed=3, logging=True, slow=False)),
    "people, out of fold": lambda: people_in_folds(7),
    "three streams": lambda: {name: column[:48] for name, column in columns().items()},
}


def with_tokens(values):
    return values | {"tokens_fast": 100 + np.arange(len(values["stream"])) % 13}


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Areas from histograms of fewer bins, which merge faster and have larger bounds."""
    monkeypatch.setattr(histograms, "LOG_RATIO", histograms.LOG_RATIO._replace(bins=1 << 11))
    monkeypatch.setattr(drawing, "can_draw", lambda: False)


def in_memory(scores):
    return Study(
        scores,
        protocol.calibrate(scores),
        f"{number_of_steps(scores)} test steps of x",
        PAPER,
        SETTINGS,
        method="paper",
    )


def number_of_steps(scores):
    return len(splits.evaluated_rows(scores).steps())


def sums_of(scores, number, names=ON_SCORES, **how):
    run = running.over(parts_of(scores, number, seed=number))
    return in_parts.sum_tables(run, names, PAPER, SETTINGS, "paper", **how)


def sheets_of(tables):
    """The sheets of every table by name, or why it is skipped: of a study in memory, or of sums."""
    found = {}
    for name in ON_SCORES:
        study = tables if isinstance(tables, Study) else tables.study("x")
        try:
            found |= {sheet.name: sheet for sheet in registry.function(name)(study).sheets}
        except SkippedError as error:
            found[name] = str(error)
    return found


def numbers_of(sheet):
    """Every number of a sheet by row, measure and part; texts must be equal as they are."""
    for line in sheet.lines:
        for key, cell in line.cells.items():
            for part in ("value", "low", "high") if isinstance(cell, Number) else ("",):
                yield (line.section, line.name, key, part), getattr(cell, part) if part else cell


@pytest.mark.filterwarnings("ignore::prism_jax.decision.calibration.CalibrationWarning")
@pytest.mark.parametrize("name", TABLES)
def test_every_number_is_that_of_the_table_in_memory(name):
    scores = Scores.from_columns(TABLES[name]())
    found, expected = sheets_of(sums_of(scores, 5)), sheets_of(in_memory(scores))
    assert found.keys() == expected.keys()
    areas = 0
    for stem, sheet in expected.items():
        mine = found[stem]
        if isinstance(sheet, str):
            assert mine == sheet
            continue
        words = re.search(r" AUDBC is within (\S+) points of the rows' own\.", mine.note)
        bound = float(words[1]) / 100 if words else 0.0
        assert mine.note.replace(words[0] if words else "", "") == sheet.note and mine.title == sheet.title
        theirs = dict(numbers_of(sheet))
        assert theirs.keys() == dict(numbers_of(mine)).keys()
        for place, value in numbers_of(mine):
            if isinstance(value, str) or math.isnan(value):
                assert value == theirs[place] or math.isnan(theirs[place]), (stem, place)
            elif place[2] == "audbc":
                areas += not math.isnan(value)
                most = bound + 1e-9 if place[3] == "value" else 0.1
                assert abs(value - theirs[place]) <= most, (stem, place)
            else:
                assert value == pytest.approx(theirs[place], rel=1e-5, abs=1e-9), (stem, place)
        assert bound < 0.05
    assert (areas > 0) == (name != "soft labels")


def test_of_few_rows_every_number_is_exact(monkeypatch):
    monkeypatch.setattr(states, "MOST_KEPT", 3)  # units of more rows
    scores = Scores.from_columns(columns(seed=4))
    found, expected = sheets_of(sums_of(scores, 5, exact=True)), sheets_of(in_memory(scores))
    for stem, sheet in expected.items():
        assert found[stem].note == sheet.note
        for (place, value), (_, number) in zip(numbers_of(found[stem]), numbers_of(sheet), strict=True):
            if not isinstance(value, str) and (place[3] == "value" or place[2] != "audbc"):
                assert value == pytest.approx(number, rel=1e-12, abs=1e-14, nan_ok=True), (stem, place)


@pytest.mark.slow
def test_every_division_gives_the_same_counts():
    """The parts divide streams, and hold their rows in any order; one division is into whole streams.

    The pairs of a divided stream's own steps that no part holds are estimated, so the ends of an area move a little.
    """
    scores = Scores.from_columns(columns(seed=4))
    some = np.isin(scores.stream, np.unique(scores.stream)[::3])
    whole = in_parts.sum_tables(
        running.over([scores.take(some), scores.take(~some)]), ON_SCORES, PAPER, SETTINGS, "paper"
    )
    tables = [sums_of(scores, 1), whole, sums_of(scores, 2), sums_of(scores, 7)]
    one, *others = ({stem: dict(numbers_of(sheet)) for stem, sheet in sheets_of(of).items()} for of in tables)
    for other, (stem, numbers) in itertools.product(others, one.items()):
        assert other[stem].keys() == numbers.keys()
        for place, value in numbers.items():
            if isinstance(value, str) or (place[2] in COUNTED and place[3] == "value"):
                assert other[stem][place] == value or math.isnan(value), (stem, place)
            elif place[2] == "audbc" and place[3] != "value" and other is not others[0]:
                assert other[stem][place] == pytest.approx(value, abs=0.005, nan_ok=True), (stem, place)
            else:
                assert other[stem][place] == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), (stem, place)


@pytest.mark.parametrize("slow", [False, True])
def test_the_case_study_is_the_same_wherever_its_stream_is_divided(slow):
    """Also where the step that ends a silence is the first of a part, so that the silence is in the part before."""
    scores = Scores.from_columns(columns(slow=slow))
    data = in_memory(scores).at()
    step = case_study.choose(data)
    chosen, number = data.steps.stream[step], data.candidates.step_numbers()
    for at in (step - 1, step, step + 1, *range(1, len(data.steps), 5)):
        divided = (data.candidates.take(rows) for rows in (number < at, number >= at))
        first, second = (case_study.Case.of(protocol.prepare(rows, data.fits, data.point)[0]) for rows in divided)
        assert first.merge(second).stream == chosen, at


def test_an_offer_ends_the_silence_of_the_part_before_only_in_its_own_stream():
    before = case_study.Case(("a", "a"), (0.1, 0.3), first="a", opening=-1.0, last="b", silent=True)
    after = case_study.Case(("b", "b"), (-1.0, 0.4), first="b", opening=0.5, last="b", silent=False)
    assert (before.merge(after).stream, before.merge(after).distances) == ("b", (0.5, 0.4))
    for other in (before._replace(silent=False), before._replace(last="a")):
        assert (other.merge(after).stream, other.merge(after).distances) == ("a", (0.1, 0.4))


def test_intervals_of_many_units_are_close_and_their_numbers_the_same(monkeypatch):
    """Above the number of units whose sums are kept; the intervals are then of resamples."""
    scores, names = (
        Scores.from_columns(make_columns(seed=2, streams=300, steps=4)),
        ("main", "inference", "significance"),
    )
    kept = in_parts.sum_tables(running.over(parts_of(scores, 3)), names, PAPER, IntervalSettings(resamples=500))
    monkeypatch.setattr(states, "MOST_KEPT", 20)
    resampled = in_parts.sum_tables(running.over(parts_of(scores, 3)), names, PAPER, IntervalSettings(resamples=500))
    assert resampled.sums["units"].keys is not None
    small = 0
    for name in names:
        mine, theirs = (registry.function(name)(tables.study("x")).sheets[0] for tables in (resampled, kept))
        for (place, value), (_, other) in zip(numbers_of(mine), numbers_of(theirs), strict=True):
            if place[2].startswith("p_"):  # of another method; that of the smallest is about one by the resamples
                assert other > 0.001 or value < 0.05 or math.isnan(other), (name, place)
                small += other <= 0.001
                continue
            most = 1e-9 if place[3] == "value" else 0.05
            assert value == pytest.approx(other, abs=most, nan_ok=True), (name, place)
    assert small


@pytest.fixture
def files(tmp_path, small_parts):
    """A scores file, and the same rows in no order."""
    scores = Scores.from_columns(columns(seed=6))
    shuffled = scores.take(np.random.default_rng(0).permutation(len(scores)))
    for name, rows in {"in_order": scores, "shuffled": shuffled}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "scores.parquet", rows)
    return tmp_path


@pytest.mark.slow
def test_the_order_of_rows_changes_no_number(files, monkeypatch):
    monkeypatch.setattr(histograms, "LOG_RATIO", LOG_RATIO)  # as in the processes of workers
    names = ("main", "inference", "calibration_quality", "significance", "case_study")
    one = made(files / "in_order", files / "one", names)
    exact = made(files / "in_order", files / "exact", names, most=None)
    shuffled = made(files / "shuffled", files / "other", names)
    for name in (*names, "significance_mcnemar"):
        if name != "inference":
            assert one[f"{name}.csv"] == exact[f"{name}.csv"] == shuffled[f"{name}.csv"], name
    assert one.keys() == exact.keys()


def test_a_table_that_cannot_be_made_is_said_as_in_memory(files, capsys):
    made(files / "in_order", files / "out", ("main", "pathways", "case_study"))
    assert "skipped pathways: it needs trainings" in capsys.readouterr().out
    scores = Scores.from_columns(columns(slow=False))
    write_scores(files / "fast.parquet", scores)
    with pytest.raises(SkippedError, match="inference: slow pass: there is no column p_"):
        made(files / "fast.parquet", files / "none", ("inference",))
