"""The control surface: the gate's decisions at every cost ratio and every slow margin, counted exactly in one pass.

For each margin a step's final decision is one threshold on the cost ratio (docs/maths.md, section 3), so one histogram
of indices into the sorted cost grid and a cumulative sum give the counts at every cost: O(steps + costs) per margin
instead of O(steps * costs). Indices come from the gate's own comparison (`cost_grid`), so each cell equals
`gate.decide_with_slow` at that cell bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from prism_jax.decision import arrays
from prism_jax.decision.arrays import Array, Scalar, Vector
from prism_jax.decision.costs.cost_grid import PAPER_COST_RATIOS, CostGrid, check_axis, cost_grid
from prism_jax.decision.costs.surface_counts import (
    Classes,
    Histograms,
    count_on_device,
    count_on_host,
    host_slow_range,
    on_accelerator,
)
from prism_jax.decision.costs.sweep import best_label
from prism_jax.decision.metrics import Confusion
from prism_jax.decision.passes import BothPasses, Pass

__all__ = ["PAPER_COST_RATIOS", "PAPER_MARGINS", "Surface", "control_surface"]

PAPER_MARGINS = (0.0, 0.05, 0.10, 0.15)
"""delta of the paper's grid sweep."""

Counts = Int[Array, "*groups settings costs"]
Rates = Float[Array, "*groups settings costs"]

_GOLD, _ACCEPTED, _MISSED = 1, 2, 4  # bits of a label class: y, y_accept, and what silence misses


class Surface(NamedTuple):
    """Exact counts of steps for every setting of the slow trigger and every cost ratio, in the order given.

    Arrays are [setting, cost], or [group, setting, cost] where groups were given.

    Attributes:
      cost_ratios: Cost ratios r = C_FN / C_FA of each column, in the dtype of the comparisons.
      settings: Margin delta of each row, in the same dtype; of `value_surface`, price of a token in units of C_FA.
      steps: Number of steps; one number per group if groups were given.
      tp: Interventions with a gold-positive candidate.
      fp: Interventions with a gold-negative candidate.
      fn: Silences on steps whose best candidate is gold-positive.
      tn: Silences on the other steps.
      slow: Steps on which the slow pass ran.
      slow_tokens: Tokens of the slow pass on those steps; None without `tokens`.
      rejected: Interventions with y_accept = 0, Proposition 1's false alarms; None without `y_need` and `y_accept`.
      missed: Silences with y_need = y_accept = 1, Proposition 1's misses; `fn` where candidates differ; None likewise.
    """

    cost_ratios: Float[Array, " costs"]
    settings: Float[Array, " settings"]
    steps: int | Int[Array, "*groups"]
    tp: Counts
    fp: Counts
    fn: Counts
    tn: Counts
    slow: Counts
    slow_tokens: Counts | None
    rejected: Counts | None
    missed: Counts | None

    def confusion(self) -> Confusion:
        """The counts in the form that `metrics.rates` takes."""
        return Confusion(self.tp, self.fp, self.fn, self.tn)

    def slow_rate(self) -> Rates:
        """Share of steps on which the slow pass ran; NaN for a group without steps."""
        return self._per_step(self.slow)

    def speak_rate(self) -> Rates:
        """Share of steps with an intervention; NaN for a group without steps."""
        return self._per_step(self.tp + self.fp)

    def realised_cost(self, c_fa: Scalar = 1.0) -> Rates:
        """Mean of C_FA * a * (1 - y_accept) + C_FN * (1 - a) * y_need * y_accept, where C_FN = r * C_FA in column r.

        Raises:
          ValueError: if the surface was counted without `y_need` and `y_accept`, or c_fa is not above 0.
        """
        arrays.check_costs(c_fa, 0.0)
        if self.rejected is None or self.missed is None:
            raise ValueError(
                "realised_cost: found no acceptance counts, expected y_need and y_accept in control_surface or "
                "value_surface"
            )
        return self._per_step(c_fa * (self.rejected + self.cost_ratios * self.missed))

    def token_cost(self) -> Rates:
        """Mean price of the slow pass's tokens, to stand beside the realised cost; of `value_surface` alone.

        Raises:
          ValueError: if the surface was counted without `slow_tokens`.
        """
        if self.slow_tokens is None:
            raise ValueError("token_cost: found no tokens, expected slow_tokens in value_surface")
        return self._per_step(self.settings[:, None] * self.slow_tokens)

    def _per_step(self, total: Any) -> Any:
        xp = arrays.namespace(self.steps)
        steps = xp.asarray(self.steps)[..., None, None]
        return xp.where(steps == 0, xp.nan, total / xp.maximum(steps, 1))


MOST_TOKENS = 2**53
"""Largest total of tokens: the host sums them in float64."""
MOST_GROUPS = 1_000_000
"""Largest number of groups that is taken from the groups themselves; `num_groups` may be larger."""


def control_surface(
    fast: Pass,
    slow: Pass,
    y: Vector,
    cost_ratios: Sequence[Scalar] | Array = PAPER_COST_RATIOS,
    margins: Sequence[Scalar] | Array = PAPER_MARGINS,
    groups: Vector | None = None,
    tokens: Vector | None = None,
    *,
    y_need: Vector | None = None,
    y_accept: Vector | None = None,
    num_groups: int | None = None,
    y_slow: Vector | None = None,
    y_accept_slow: Vector | None = None,
    y_best: Vector | None = None,
) -> Surface:
    """Counts, slow passes and tokens of the dynamic gate with a slow margin, at every margin and cost ratio.

    Probabilities are compared in their common dtype, float32 or float64, to which costs and margins are rounded.
    Concrete arrays are counted on the host's CPU; inside `jit` and for arrays on an accelerator XLA counts, in int32.

    Args:
      fast: Probabilities of the fast pass, one of each signal for each step.
      slow: Probabilities of the slow pass; NaN in both where it never ran.
      y: Gold labels y_need AND y_accept, 0 or 1.
      cost_ratios: Cost ratios r = C_FN / C_FA >= 0, any number in any order; known before tracing.
      margins: Slow margins delta >= 0 in any order, known before tracing; 0 is fast-only, at least 1 slow-only.
      groups: Group of each step, integers from 0, such as a domain; every count gets a leading axis.
      tokens: Tokens of each step's slow pass, integers of at least 0.
      y_need: Need labels, 0 or 1; with `y_accept` they give the counts behind `Surface.realised_cost`.
      y_accept: Acceptance labels, 0 or 1.
      num_groups: Number of groups, needed inside `jit`; elsewhere the largest group plus 1 by default.
      y_slow: Gold labels of the slow pass's candidates, which offers count with where it runs; None is `y`.
      y_accept_slow: Their acceptance labels; needed with `y_accept` and `y_slow`.
      y_best: Largest gold label of each step's candidates, for silence; None is the larger of `y` and `y_slow`.

    Returns:
      The counts: NumPy int64 from NumPy inputs, JAX int32 from JAX inputs.

    Raises:
      ValueError: for a value outside its range, lengths that differ, empty arrays, one of `y_need` and `y_accept`
        without the other, labels of the slow pass's candidates without those of the fast pass's, a `y_best` below
        another gold label of its step, or a margin at which the slow pass would run on a step whose slow signals are
        NaN: a log can be replayed only at margins and costs whose slow signals it holds. Inside `jit` values are not
        checked.

    Examples:
      >>> need = np.array([0.8, 0.8, 0.8])
      >>> fast, slow = Pass(need, np.array([0.9, 0.4, 0.3])), Pass(need, np.array([0.9, 0.1, 0.8]))
      >>> surface = control_surface(fast, slow, np.array([1, 0, 1]), cost_ratios=[1, 2], margins=[0, 0.2])
      >>> surface.tp  # one row for each margin
      array([[1, 1],
             [1, 2]])
      >>> surface.slow
      array([[0, 0],
             [1, 2]])
    """
    groups, tokens = arrays.as_array(groups), arrays.as_array(tokens)
    probabilities = BothPasses(fast, slow)
    for name, probability in probabilities.named().items():
        arrays.check_kind(name, probability)
    columns = {"y": y, "groups": groups, "tokens": tokens, "y_need": y_need, "y_accept": y_accept}
    columns |= {"y_slow": y_slow, "y_accept_slow": y_accept_slow, "y_best": y_best}
    if (y_slow is None) != (y_accept_slow is None) and y_accept is not None:
        raise ValueError("y_slow, y_accept_slow: found one of them beside y_accept, expected both or neither")
    arrays.check_lengths(**probabilities.named(), **columns)
    inputs = [value for value in (*probabilities.arrays, *columns.values()) if value is not None]
    device = arrays.is_traced(*inputs) or any(on_accelerator(value) for value in inputs)
    xp = arrays.namespace(*inputs) if device else np
    signals = _signals(xp, probabilities)
    best = best_label(y, y_slow, y_best)
    classes = _classes(xp, y, y_need, y_accept, groups, num_groups, best)
    slow_classes = None if y_slow is None else _classes(xp, y_slow, y_need, y_accept_slow, None, None, best)
    token = None if tokens is None else _integers(xp, "tokens", tokens)
    if token is not None and xp is np and (total := float(token.sum(dtype=np.float64))) > MOST_TOKENS:
        raise ValueError(f"tokens: found {total:g} in all, expected at most {MOST_TOKENS}, up to which sums are exact")
    dtype = signals.fast.need.dtype
    ratios, deltas = check_axis("cost_ratios", cost_ratios, dtype), check_axis("margins", margins, dtype)
    order = np.argsort(ratios, kind="stable")
    grid = cost_grid(ratios[order])
    if not arrays.is_traced(*signals.arrays):
        _check_missing(signals, deltas, grid)
    count = count_on_device if device else count_on_host
    counted_classes = classes if slow_classes is None else _pairs(classes, slow_classes)
    counted = count(signals, counted_classes, token, deltas, grid, len(ratios) + 1)
    labels = classes.labels if slow_classes is not None else 0
    surface = _assemble(
        counted,
        ratios,
        deltas,
        order,
        grouped=groups is not None,
        accepts=y_accept is not None,
        pairs_of=labels,
        silence=_GOLD if best is None else _MISSED,
    )
    return surface if device or arrays.namespace(*inputs) is np else _as_jax(surface)


def _signals(xp: Any, probabilities: BothPasses) -> BothPasses:
    """The four signals in their common dtype, checked; NaN is allowed only in both slow signals of a step."""
    _, *floats = arrays.as_floats(*probabilities.arrays)
    dtype = np.result_type(*(value.dtype for value in floats))
    floats = [xp.asarray(value, np.float64 if dtype == np.float64 else np.float32) for value in floats]
    signals = BothPasses(Pass(*floats[:2]), Pass(*floats[2:]))
    arrays.check_probability("p_need_fast", signals.fast.need)
    arrays.check_probability("p_accept_fast", signals.fast.accept)
    if arrays.is_traced(*signals.arrays):
        return signals
    missing = xp.isnan(signals.slow.need)
    unpaired = missing != xp.isnan(signals.slow.accept)
    if unpaired.any():
        index = int(unpaired.argmax())
        raise ValueError(
            f"p_need_slow, p_accept_slow: found {signals.slow.need[index]} and {signals.slow.accept[index]} "
            f"at index {index}, expected two probabilities, or NaN in both where the slow pass never ran"
        )
    for name, value in (("p_need_slow", signals.slow.need), ("p_accept_slow", signals.slow.accept)):
        arrays.check_probability(name, xp.where(missing, 0, value) if missing.any() else value)
    return signals


def _check_missing(signals: BothPasses, margins: np.ndarray, grid: CostGrid) -> None:
    """Raises ValueError if the widest margin runs the slow pass on a step without slow signals, at any cost."""
    (missing,) = np.nonzero(np.isnan(np.asarray(signals.slow.need)))
    if len(missing) == 0:
        return
    without = BothPasses(*(Pass(*(np.asarray(value)[missing] for value in of)) for of in signals))
    start, stop = host_slow_range(without, margins.max(), grid)
    needed = start < stop
    if needed.any():
        first = int(needed.argmax())
        raise ValueError(
            f"margins: found {margins.max()}, which runs the slow pass where the slow signals are NaN "
            f"(steps: {int(needed.sum())}, the first at index {missing[first]} and cost ratio "
            f"{grid.costs[start[first]]}); expected margins and cost ratios for which the log holds the slow signals"
        )


def _classes(
    xp: Any, y: Any, y_need: Any, y_accept: Any, groups: Any, num_groups: int | None, best: Any | None
) -> Classes:
    """Label class and group of each step, checked; silence misses `best`, or y_need AND y_accept."""
    if (y_need is None) != (y_accept is None):
        raise ValueError("y_need, y_accept: found one of them, expected both or neither")
    for name, labels in (("y", y), ("y_need", y_need), ("y_accept", y_accept), ("y_best", best)):
        if labels is not None:
            arrays.check_hard(name, labels)
    label = xp.asarray(y).astype(np.int8) * xp.asarray(_GOLD, np.int8)
    missed = best
    if y_need is not None:
        need, accept = xp.asarray(y_need).astype(np.int8), xp.asarray(y_accept).astype(np.int8)
        label = label + accept * xp.asarray(_ACCEPTED, np.int8)
        missed = need * accept if best is None else best
    if missed is not None:
        label = label + xp.asarray(missed).astype(np.int8) * xp.asarray(_MISSED, np.int8)
    labels = 2 if missed is None else 8
    if groups is None:
        return Classes(None, label, 1, labels)
    group = _integers(xp, "groups", groups)
    if num_groups is None:
        if arrays.is_traced(group):
            raise ValueError("num_groups: found None inside jit, expected the number of groups")
        num_groups = int(group.max()) + 1
        if num_groups > MOST_GROUPS:
            raise ValueError(
                f"groups: found the number {num_groups - 1}, expected less than {MOST_GROUPS}: every count has a row "
                "for each number (np.unique(..., return_inverse=True) gives consecutive ones)"
            )
    elif not arrays.is_traced(group):
        arrays.check_range("groups", group, 0.0, float(num_groups - 1), f"an integer in [0, {num_groups - 1}]")
    return Classes(group, label, num_groups, labels)


def _integers(xp: Any, name: str, value: Any) -> Any:
    """`value` as an array of integers of at least 0."""
    if not np.issubdtype(value.dtype, np.integer):
        raise ValueError(f"{name}: found dtype {value.dtype}, expected integers")
    arrays.check_range(name, value, 0.0, np.inf, "an integer of at least 0")
    return xp.asarray(value)


def _pairs(fast: Classes, slow: Classes) -> Classes:
    """Groups by the pair of label classes of both passes' candidates, inside the groups of the steps."""
    xp = arrays.namespace(fast.label, slow.label)
    pair = fast.label.astype(np.int32) * fast.labels + slow.label.astype(np.int32)
    if fast.group is not None:
        pair = fast.group.astype(np.int32) * fast.labels**2 + pair
    return Classes(pair, xp.zeros(pair.shape, np.int8), fast.groups * fast.labels**2, 1)


def _without_pairs(counted: Histograms, labels: int) -> Histograms:
    """Counts by group, of histograms by group and pair; `first` keeps the pairs: [margin, group, fast, slow, K + 1]."""

    def by_group(histogram: Any) -> Any:
        margins, groups, columns = histogram.shape
        return histogram.reshape(margins, groups // labels**2, labels**2, columns).sum(axis=2)

    margins, groups, _, columns = counted.first.shape
    tokens = (None if h is None else by_group(h) for h in (counted.tokens_from, counted.tokens_to))
    first = counted.first.reshape(margins, groups // labels**2, labels, labels, columns)
    return Histograms(first, by_group(counted.slow_from), by_group(counted.slow_to), *tokens)


def _assemble(
    counted: Histograms,
    ratios: np.ndarray,
    margins: np.ndarray,
    order: np.ndarray,
    *,
    grouped: bool,
    accepts: bool,
    pairs_of: int,
    silence: int,
) -> Surface:
    """Cumulative sums over the grid, with columns in the order of `ratios` and the group axis first or left out.

    `pairs_of` is the number of label classes if the histograms are by pairs of them (`_pairs`), 0 otherwise. `silence`
    is the bit with which silence counts as a false or a true negative; both classes of a pair have the same.
    """
    xp = arrays.namespace(counted.first)
    back = np.argsort(order)

    def at_costs(histogram: Any) -> Any:
        """[margin, group, ..., K + 1] to counts up to each cost, [group, ..., margin, cost]."""
        below = xp.moveaxis(xp.cumsum(histogram, axis=-1)[..., back], 0, -2)
        return below if grouped else below[0]

    def with_bit(counts: Any, bit: int) -> Any:
        """Sum of counts [..., label, margin, cost] over the label classes that have `bit`."""
        return counts[..., [label for label in range(counts.shape[-3]) if label & bit], :, :].sum(axis=-3)

    if pairs_of:
        by_pair = (len(margins), -1, pairs_of, pairs_of, counted.slow_from.shape[-1])
        stop = counted.slow_to.reshape(by_pair)
        counted = _without_pairs(counted, pairs_of)
        fast, slow = 3, 2  # the axis to sum over for the labels of the fast or of the slow pass's candidates
        # Up to `stop` an offer is the slow pass's candidate, from there on the fast pass's.
        offers = at_costs(counted.first.sum(axis=slow) - stop.sum(axis=slow) + stop.sum(axis=fast))
        all_steps = counted.first[0].sum(axis=(2, 3))  # [group, label of the fast pass's candidate]
    else:
        offers = at_costs(counted.first)
        all_steps = counted.first[0].sum(axis=-1)  # [group, label]
    all_steps = (all_steps if grouped else all_steps[0])[..., None, None]
    tp, interventions, steps = with_bit(offers, _GOLD), offers.sum(axis=-3), all_steps.sum(axis=-3)
    fn = with_bit(all_steps, silence) - with_bit(offers, silence)
    tokens = None
    if counted.tokens_from is not None:
        tokens = at_costs(counted.tokens_from) - at_costs(counted.tokens_to)
    return Surface(
        cost_ratios=xp.asarray(ratios),
        settings=xp.asarray(margins),
        steps=steps[..., 0, 0],
        tp=tp,
        fp=interventions - tp,
        fn=fn,
        tn=steps - interventions - fn,
        slow=at_costs(counted.slow_from) - at_costs(counted.slow_to),
        slow_tokens=tokens,
        rejected=interventions - with_bit(offers, _ACCEPTED) if accepts else None,
        missed=with_bit(all_steps, _MISSED) - with_bit(offers, _MISSED) if accepts else None,
    )


def _as_jax(surface: Surface) -> Surface:
    """The host's counts as JAX arrays.

    Raises:
      ValueError: if a token sum does not fit JAX's default integers.
    """
    import jax
    import jax.numpy as jnp

    top = jnp.iinfo(jnp.result_type(int)).max
    if surface.slow_tokens is not None and surface.slow_tokens.max() > top:
        raise ValueError(
            f"tokens: found a total of {surface.slow_tokens.max()}, expected at most {top}; give NumPy arrays"
        )
    return jax.tree.map(jnp.asarray, surface)
