"""The job of `prism_jax counterfactual`: what another gate would have cost, and how much of it a log can tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from etils import epath
from jaxtyping import Float64, Int

from prism_jax.acceptance.columns import LogError, parse_columns
from prism_jax.acceptance.logs import AcceptanceLog, read_log
from prism_jax.decision import arrays, gate, off_policy
from prism_jax.decision.off_policy import Logged, Support
from prism_jax.evaluation.fits import read_calibration
from prism_jax.report.numbers import DASH, number, percent, show_estimate
from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime.files import parse_json, read_lines, write_files
from prism_jax.scores import Scores, ScoresError, located
from prism_jax.scores.joining import find_files, read_files
from prism_jax.scores.records import is_record
from prism_jax.scores.texts import ordered

FOLDS = 5
"""Folds of people for the model of the doubly robust estimate."""
FEW = 100
"""With fewer people, intervals cover less often than they say (docs/counterfactual.md)."""
NAMES = {"ips": "inverse propensities", "snips": "self-normalised", "dr": "doubly robust"}
_LEAST = 1e-4
"""Probabilities nearer to 0 or 1 than this count as this in the model of the doubly robust estimate."""
Rows = Float64[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True)
class EstimateSettings:
    """Costs, limits and resampling."""

    c_fa: float = 1.0  # cost of an offer that is not accepted
    c_fn: float = 2.0  # cost of silence where help was needed and an offer would have been accepted
    # largest share of the target's offers that the log may be unable to show
    most_uncovered: float = off_policy.support.MOST_UNCOVERED
    least_effective: float = off_policy.support.LEAST_EFFECTIVE  # smallest effective number of the target's offers
    # smallest effective number of offers that tell the policies apart
    least_changes: float = off_policy.support.LEAST_CHANGES
    resamples: int = 2000  # bootstrap resamples of people
    seed: int = 0  # seed of the resamples

    @property
    def limits(self) -> dict[str, float]:
        """The limits of `off_policy.check_support`."""
        return {name: getattr(self, name) for name in ("most_uncovered", "least_effective", "least_changes")}


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The rows of a log with a target policy."""

    target: Rows  # pi, the probability that the target policy makes each offer
    logged: Logged  # what the log knows
    person: Int[np.ndarray, " rows"]  # number of each row's person, or of its stream where people are not known
    features: Float64[np.ndarray, "rows features"]  # what the model of the doubly robust estimate reads
    notes: tuple[str, ...]  # sentences about how the log was read


def of_scores(
    path: str,
    settings: EstimateSettings,
    *,
    target: str | None = None,
    calibration: str | None = None,
    records: bool = False,
) -> Decisions:
    """One row per step of a scores table or of an agent's records: the offer that was made or could have been.

    `path` is a file, a folder or a glob, whose tables are one, and each of whose records files is whole.
    `target` is the column with the target's probability of an offer; None is the gate at the settings' costs. A
    calibration.json is applied to the signals where one is named. With `records`, the file holds decision records,
    where a missing propensity means that no offer was possible. ScoresError for a table without log or propensities.
    """
    paths = find_files(path)
    if records:
        for file in paths:
            _check_records(file)
    scores = read_files(paths)
    try:
        steps, unknown = _answered(_decided(scores))
        need, accept, notes = _signals(steps, calibration)
        pi = _gate(need, accept, settings) if target is None else _column(steps, target)
        offered, propensity = _values(steps, "logged") == 1, _values(steps, "propensity")
    except ScoresError as error:
        raise located(error, path) from None
    if records:
        propensity = np.where(np.isnan(propensity), 0.0, propensity)
    y_need = np.full(len(steps), np.nan) if steps.y_need is None else steps.y_need
    if np.isnan(y_need[offered]).any():
        notes += ("An accepted offer without a judgement of need counts as needed.",)
    if unknown:
        notes += (f"{unknown} offers without an answer are left out, as if they were any offers.",)
    if steps.person is None:
        notes += ("The table has no people: streams are resampled in their place.",)
    person = ordered(*steps.numbered("stream" if steps.person is None else "person"))[1]
    accepted = np.where(offered, np.nan_to_num(_values(steps, "y_accept")), 0.0)
    logged = Logged(offered, propensity, accepted, np.nan_to_num(y_need, nan=1.0))
    features = np.column_stack(
        [arrays.log_odds(accept, _LEAST), *([] if need is None else [arrays.log_odds(need, _LEAST)])]
    )
    return Decisions(pi, logged, person, features, notes)


def of_log(
    path: str,
    columns: Sequence[str],
    settings: EstimateSettings,
    *,
    target: str | None = None,
    shown_only: bool = False,
) -> Decisions:
    """The rows of an acceptance log of any columns; need is not known there, so every acceptable offer counts.

    `columns` are ROLE=COLUMN parts with person, accepted, logged, propensity, and score unless a target is given.
    `target` is the column with the target's probability of an offer; None offers where the score, a probability,
    reaches C_FA / (C_FA + C_FN). `shown_only` leaves out the offers that were not made, of a log without propensities:
    what is left is the log of a policy that always offers.

    Raises:
      LogError: for a log that cannot be read, or that misses what the estimate needs.
    """
    roles = parse_columns(columns)
    if target is not None and target in dataclasses.asdict(roles).values():
        raise LogError(f"--target: found {target!r}, which has a role in --columns, expected a column of its own")
    log = read_log(path, roles, [target] if target else [])
    propensity = _propensity(path, log, shown_only=shown_only)
    score = np.full(len(log), 0.5) if log.score is None else log.score
    notes: tuple[str, ...] = ("The log has no judgement of need: every offer that would be accepted counts as needed.",)
    if shown_only:
        notes += (f"Of shown offers only: {(~log.logged).sum()} of {len(log)} were not made and are left out.",)
    if target:
        pi = log.context[0].values.astype(np.float64)
        bad = ~((pi >= 0) & (pi <= 1))
        if log.context[0].kind == "category" or bad.any():
            row = int(bad.argmax())
            value = (
                "a text" if log.context[0].kind == "category" else "nothing" if np.isnan(pi[row]) else f"{pi[row]:g}"
            )
            raise LogError(
                f"{path}, row {row}, column {target!r}: found {value}, expected the target's probability of an offer"
            )
    elif bad_score := _bad_score(log):
        place = f"{path}, column {roles.score!r}" if roles.score else path
        raise LogError(
            f"{place}: {bad_score}, expected score=COLUMN with a probability in every row, or --target=COLUMN with the "
            "target's probability of an offer: for a threshold on a score, 1 where it is reached and 0 elsewhere"
        )
    else:
        pi = _gate(None, score, settings)
    known = np.where(np.isnan(score), np.nanmedian(score), score)
    features = np.column_stack([arrays.log_odds(known, _LEAST) if log.score_is_probability else known, np.isnan(score)])
    rows = log.logged if shown_only else np.ones(len(log), bool)
    accepted = np.where(log.logged, log.accepted, 0.0)
    logged = Logged(log.logged[rows], propensity[rows], accepted[rows], np.ones(int(rows.sum())))
    person = np.unique(log.person[rows], return_inverse=True)[1]
    return Decisions(pi[rows], logged, person, features[rows].astype(np.float64), notes)


def _bad_score(log: AcceptanceLog) -> str | None:
    """What keeps the score of a log from deciding as a probability; None if it can."""
    if log.score is None:
        return "found no role score in --columns"
    if not log.score_is_probability:
        return f"found scores from {np.nanmin(log.score):g} to {np.nanmax(log.score):g}"
    missing = int(np.isnan(log.score).sum())
    return f"found no score at {missing} of {len(log)} rows" if missing else None


def _propensity(path: str, log: AcceptanceLog, *, shown_only: bool) -> Rows:
    """The propensities; 1 for all offers of a log of shown offers only."""
    if shown_only and log.propensity is not None:
        raise LogError(
            f"{path}: found propensity=COLUMN and --shown_only, expected one: with it, silent rows count too"
        )
    if shown_only:
        return np.ones(len(log))
    if log.propensity is None:
        silent = int((~log.logged).sum())
        hint = f"; or --shown_only, which leaves out {silent} offers that were not made" if silent else ""
        raise LogError(
            f"{path}: found no column of propensities, expected propensity=COLUMN; 1 where all were offered{hint}"
        )
    return log.propensity


def tables(decisions: Decisions, settings: EstimateSettings) -> list[Table]:
    """The difference from the logging policy, the level of the cost where the log tells it, and the support.

    Raises:
      OverlapError: where the log cannot support the estimate; the message says why.
    """
    support = off_policy.check_support(decisions.target, decisions.logged, decisions.person, **settings.limits)
    people = support.people
    notes = [*decisions.notes, f"95 % intervals over resamples of {people} people."]
    if people < FEW:
        notes.append(f"With fewer than {FEW} people they may cover less often.")
    if uncovered := support.unknown + support.impossible:
        notes.append(
            f"The log cannot show {100 * uncovered:.2g} % of the target's offers: the intervals are wider by all that "
            "these may cost."
        )
    results = [_difference(decisions, settings, " ".join(notes))]
    if _level_unknown(decisions, settings) is None:
        results.append(_level(decisions, settings))
    return [*results, _support(support)]


def _level_unknown(decisions: Decisions, settings: EstimateSettings) -> str | None:
    """Why the log does not tell the mean cost itself, which needs every row as a target that always offers does."""
    always = off_policy.measure_support(np.ones_like(decisions.target), decisions.logged, decisions.person)
    if not always.everywhere:
        return "it needs a probability above 0 of an offer at every row"
    return off_policy.refusal(always, **settings.limits)


def write_tables(decisions: Decisions, settings: EstimateSettings, out: str | None) -> None:
    """Prints the tables and writes them as CSV, Markdown and LaTeX into a folder, if one is given."""
    results = tables(decisions, settings)
    if out:
        kinds = {"csv": Table.to_csv, "md": Table.to_markdown, "tex": Table.to_latex}
        names = ("difference", *(("level",) if len(results) > 2 else ()), "support")
        folder = epath.Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        write_files(
            {
                folder / f"{name}.{kind}": render(table).encode()
                for name, table in zip(names, results, strict=True)
                for kind, render in kinds.items()
            }
        )
    print_all(results)
    if unknown := _level_unknown(decisions, settings):
        print(f"The mean cost itself is not shown: {unknown}.")


def _difference(decisions: Decisions, settings: EstimateSettings, note: str) -> Table:
    logged, d = decisions.logged, off_policy.savings(decisions.logged, settings.c_fa, settings.c_fn)
    model, rows = _model(decisions, d), []
    for name in off_policy.ESTIMATORS:
        interval = off_policy.difference(
            name,
            decisions.target,
            logged,
            decisions.person,
            c_fa=settings.c_fa,
            c_fn=settings.c_fn,
            model=model,
            resamples=settings.resamples,
            seed=settings.seed,
        )
        rows.append(Row(NAMES[name], (show_estimate(interval, sign=True),), strong=name == "ips"))
    title = "Cost of the target policy minus that of the policy that made the log (below 0: cheaper)"
    columns = (Column("difference per step", f"C_FA = {settings.c_fa:g}, C_FN = {settings.c_fn:g}."),)
    return Table(title, "estimate", columns, (Section("", tuple(rows)),), note, mark="headline")


def _level(decisions: Decisions, settings: EstimateSettings) -> Table:
    logged, d = decisions.logged, off_policy.savings(decisions.logged, settings.c_fa, settings.c_fn)
    silence = settings.c_fn * logged.needed * logged.accepted
    models = _model(decisions, d), _model(decisions, silence)
    policies = {"target": decisions.target, "always": np.ones_like(decisions.target), "never": 0 * decisions.target}
    sections = []
    for policy, target in policies.items():
        rows = []
        for name in off_policy.ESTIMATORS:
            terms = off_policy.level_terms(name, target, logged, d, silence, *models)
            interval = off_policy.mean_over_people(
                terms, decisions.person, resamples=settings.resamples, seed=settings.seed
            )
            rows.append(Row(NAMES[name], (show_estimate(interval),)))
        sections.append(Section(policy, tuple(rows)))
    note = "Every offer had a chance, so the cost itself is known; its intervals are wider than those of differences."
    return Table("Mean cost per step", "policy", (Column("cost"),), tuple(sections), note)


def _support(support: Support) -> Table:
    shares = {
        "rows": str(support.rows),
        "offers in the log": str(support.offers),
        "rows where the target offers (%)": percent(support.target),
        "of these without a propensity (%)": percent(support.unknown),
        "of these that could never be offered (%)": percent(support.impossible),
        f"of these with a weight above {off_policy.support.LARGE:g} (%)": percent(support.large),
        "effective offers": number(support.effective, 1),
        "effective changes": DASH if np.isinf(support.changes) else number(support.changes, 1),
        "people": str(support.people),
        "effective people": number(support.effective_people, 1),
    }
    rows = tuple(Row(name, (value,)) for name, value in shares.items())
    note = (
        "By the probabilities of the log, whatever was drawn. Effective offers: (Σπ)² / Σ(π²/e). Effective changes: "
        "(Σec²)² / Σ(ec⁴), c = π/e − 1. Effective people: the same over people. No weight is clipped."
    )
    return Table("What the log can tell", "", (Column("value"),), (Section("", rows),), note)


def _model(decisions: Decisions, outcome: Rows) -> Rows:
    fold = decisions.person % min(FOLDS, int(decisions.person.max()) + 1)
    return off_policy.cross_fitted(decisions.features, outcome, decisions.logged, fold)


def _check_records(path: str) -> None:
    """Raises for a file that holds no decision records: in another table an unknown propensity means something else."""
    if not path.endswith(".parquet"):
        line = next(read_lines(path, ScoresError, "decision records of prism_jax.agent"), None)
        value = {} if line is None else parse_json(line[1], path)
        if isinstance(value, dict) and (line is None or is_record(value)):
            return
    raise ScoresError(
        "found a scores table, expected decision records of prism_jax.agent; --scores reads it", place=path
    )


def _values(scores: Scores, name: str) -> Rows:
    """A column of the log that has a value somewhere."""
    column: Rows | None = getattr(scores, name)
    if column is None or np.isnan(column).all():
        answers, rest = "the answers to offers", "some: nothing follows without the log's probabilities"
        raise ScoresError(f"found no value, expected {answers if name == 'y_accept' else rest}", name)
    return column


def _decided(scores: Scores) -> Scores:
    """One row per step: the offer that was or could have been made; of a step without one, the likeliest."""
    possible = (_values(scores, "logged") == 1) | ~np.isnan(_values(scores, "propensity"))
    order = np.lexsort((scores.candidate, -scores.p_accept_fast, ~possible, numbers := scores.step_numbers()))
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    steps = scores.take(np.sort(order[first]))
    unknown = np.isnan(_values(steps, "logged"))
    if unknown.any():
        row = int(unknown.argmax())
        where = f"stream {steps.stream[row]!r}, step {steps.step[row]}"
        raise ScoresError(f"found null at {where}, expected whether an offer was made", "logged")
    return steps


def _answered(steps: Scores) -> tuple[Scores, int]:
    """The steps without the offers whose answer is unknown, and how many these are; every offer has a propensity."""
    unknown = (_values(steps, "logged") == 1) & np.isnan(_values(steps, "y_accept"))
    kept = steps.take(~unknown)
    offered = _values(kept, "logged") == 1
    missing = int(np.isnan(_values(kept, "propensity")[offered]).sum())
    if missing:
        raise ScoresError(f"found none at {missing} of {offered.sum()} offers, expected one each", "propensity")
    return kept, int(unknown.sum())


def _signals(steps: Scores, calibration: str | None) -> tuple[Rows | None, Rows, tuple[str, ...]]:
    """The signals that decide: those of the slow pass where it ran; p_need is None where there is none."""
    fits = None if calibration is None else read_calibration(calibration).pooled()
    signals: dict[str, Rows] = {}
    for signal in ("need", "accept"):
        fast, slow = getattr(steps, f"p_{signal}_fast"), getattr(steps, f"p_{signal}_slow")
        if fast is None:
            continue
        if fits is not None:
            fast = fits.calibrated(signal, "fast", steps)
            slow = slow if getattr(fits, f"{signal}_slow") is None else fits.calibrated(signal, "slow", steps)
        signals[signal] = fast if slow is None else np.where(np.isnan(slow), fast, slow)
    note = "Signals are raw." if fits is None else f"Signals are calibrated by {calibration}."
    return signals.get("need"), signals["accept"], (note,)


def _gate(need: Rows | None, accept: Rows, settings: EstimateSettings) -> Rows:
    certain = np.ones_like(accept) if need is None else need
    return np.asarray(gate.decide(certain, accept, settings.c_fa, settings.c_fn), np.float64)


def _column(steps: Scores, name: str) -> Rows:
    if name not in steps.extra:
        raise ScoresError("found no such column, expected the target's probability of an offer", name)
    try:
        values = steps.extra[name].astype(np.float64)
    except (TypeError, ValueError):
        values = np.full(len(steps), np.nan)
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        raise ScoresError(f"found {steps.extra[name][bad][0]!r}, expected a number in [0, 1] in every row", name)
    return values
