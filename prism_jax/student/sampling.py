"""From logits to the next token: greedy, or a draw after temperature, top-k and top-p, with settings per row.

Settings are arrays, so that changing one does not recompile anything.

Dimensions: B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

# One number for all rows, or one per row.
Setting = float | int | Sequence[float | int]


class Sampling(NamedTuple):
    """Sampling settings of each row."""

    temperature: Float[Array, " B"]  # divisor of the logits, at least 0; 0 is greedy
    top_k: Int[Array, " B"]  # number of likeliest tokens to draw from; 0 draws from all
    # in (0, 1]; draws from the smallest set of likeliest tokens with at least this probability; 1 draws from all
    top_p: Float[Array, " B"]
    seed: UInt32[Array, " B"]  # seed of the row's draws, which depend only on it and on the row's own logits


def make_sampling(
    rows: int,
    temperature: Setting = 0.0,
    top_k: Setting = 0,
    top_p: Setting = 1.0,
    seed: int | Sequence[int] = 0,
) -> Sampling:
    """Makes settings for `rows` rows, each one number for all of them or one per row.

    A single seed is that of the first row and increases by 1 per row.

    Raises:
      ValueError: naming the setting that is out of range or has the wrong number of entries.
    """
    seeds = seed if isinstance(seed, Sequence) else [seed + row for row in range(rows)]
    settings = Sampling(
        _by_row("temperature", temperature, rows, np.float32),
        _by_row("top_k", top_k, rows, np.int32),
        _by_row("top_p", top_p, rows, np.float32),
        _by_row("seed", seeds, rows, np.uint32),
    )
    for name, good, expected in (
        ("temperature", np.isfinite(settings.temperature) & (settings.temperature >= 0), "a number of at least 0"),
        ("top_k", np.asarray(settings.top_k) >= 0, "at least 0"),
        ("top_p", (settings.top_p > 0) & (settings.top_p <= 1), "a number in (0, 1]"),
    ):
        if not np.all(good):
            raise ValueError(f"{name}: found {np.asarray(getattr(settings, name)).tolist()}, expected {expected}")
    return settings


def _by_row(name: str, values: Setting, rows: int, dtype: type) -> Array:
    """Converts a setting to one entry per row."""
    try:
        array: np.ndarray = np.asarray(values, dtype)
    except OverflowError as error:
        raise ValueError(f"{name}: found {values}, expected numbers that fit into {np.dtype(dtype)}") from error
    if array.ndim and array.shape != (rows,):
        raise ValueError(f"{name}: found {array.size} entries, expected one or one for each of the {rows} rows")
    return jnp.asarray(np.broadcast_to(array, (rows,)))


def next_token(logits_BxV: Float[Array, "B V"], sampling: Sampling, place: Int[Array, ""] | int) -> Int[Array, " B"]:
    """Draws the next token of each row; its seed and `place`, the number of tokens drawn before, determine the draw."""
    greedy = jnp.argmax(logits_BxV, axis=-1).astype(jnp.int32)

    def draw() -> Array:
        kept = restrict(logits_BxV, sampling)
        keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), place))(sampling.seed)
        drawn = jax.vmap(jax.random.categorical)(keys, kept).astype(jnp.int32)
        return jnp.where(sampling.temperature > 0, drawn, greedy)

    return jax.lax.cond(jnp.any(sampling.temperature > 0), draw, lambda: greedy)


def restrict(logits_BxV: Float[Array, "B V"], sampling: Sampling) -> Float[Array, "B V"]:
    """Divides logits by the temperature and sets those to -inf that top-k, and then top-p, exclude.

    Tokens that tie with the last kept token are kept as well.
    """
    scaled = logits_BxV.astype(jnp.float32) / jnp.where(sampling.temperature > 0, sampling.temperature, 1.0)[:, None]

    def cut() -> Array:
        size = scaled.shape[1]
        descending = -jnp.sort(-scaled, axis=-1)
        top_k = jnp.where(sampling.top_k > 0, jnp.minimum(sampling.top_k, size), size)[:, None]
        descending = jnp.where(jnp.arange(size) < top_k, descending, -jnp.inf)
        probability = jax.nn.softmax(descending, axis=-1)
        # A token is kept if those before it have less than top_p in total, so the likeliest one is always kept.
        before = jnp.cumsum(probability, axis=-1) - probability
        kept = (before < sampling.top_p[:, None]) | (sampling.top_p[:, None] >= 1)
        least = jnp.min(jnp.where(kept & (descending > -jnp.inf), descending, jnp.inf), axis=-1, keepdims=True)
        return jnp.where(scaled >= least, scaled, -jnp.inf)

    return jax.lax.cond(jnp.any((sampling.top_k > 0) | (sampling.top_p < 1)), cut, lambda: scaled)
