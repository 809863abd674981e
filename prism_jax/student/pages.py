"""A pool of pages of keys and values, which the trunks of many streams share.

A page holds `PAGE` positions of one stream in every layer. Page 0 belongs to no stream: padding reads and writes it.
Programs take the pages of a batch's streams as a table, so that they depend on the number of pages per stream and not
on which pages these are.

Dimensions: N pages, B batch, n pages per stream, L new tokens, K key/value heads, H head width.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from prism_jax.student.kv_cache import Cache, LayerCache
from prism_jax.student.model_config import StudentConfig

PAGE = 128
"""Number of positions of a page."""


def page_bytes(config: StudentConfig) -> int:
    """Memory of one page of a student, in bytes."""
    width = config.num_kv_heads * config.head_dim * jnp.dtype(config.dtype).itemsize
    return 2 * config.num_layers * width * PAGE


def make_pool(config: StudentConfig, pages: int) -> Cache:
    """A pool of `pages` pages: keys [N, K, H, PAGE] and values [N, K, PAGE, H] per layer."""
    shape = (pages, config.num_kv_heads)
    return tuple(
        LayerCache(
            jnp.zeros((*shape, config.head_dim, PAGE), config.dtype),
            jnp.zeros((*shape, PAGE, config.head_dim), config.dtype),
        )
        for _ in range(config.num_layers)
    )


def enlarge(layer: LayerCache, pages: int) -> LayerCache:
    """A layer of a pool with more pages, `pages` in all; the old ones stay as they are."""
    more = [(0, pages - len(layer.values)), (0, 0), (0, 0), (0, 0)]
    return jax.block_until_ready(jax.tree.map(lambda leaf: jnp.pad(leaf, more), layer))


@functools.partial(jax.jit, donate_argnums=0)
def store(
    pool: Cache,
    fresh: Cache,
    table_Bxn: Int[Array, "B n"],
    lengths_B: Int[Array, " B"],
    counts_B: Int[Array, " B"],
) -> Cache:
    """Writes the first `counts` new positions of each row after the first `lengths` positions of its stream, in place.

    It is a program of its own because one that also read the pool would copy it.
    """
    length = fresh[0].values.shape[2]
    touched = jnp.arange(-(-length // PAGE) + 1)  # new positions may begin anywhere in a page
    page_Bxm = lengths_B[:, None] // PAGE + touched
    known = (page_Bxm * PAGE < (lengths_B + counts_B)[:, None]) & (page_Bxm < table_Bxn.shape[1])
    page_Bxm = jnp.minimum(page_Bxm, table_Bxn.shape[1] - 1)
    index = jnp.where(known, jnp.take_along_axis(table_Bxn, page_Bxm, axis=1), 0)
    # [B, m, PAGE]: which new position belongs at each position of the touched pages.
    source = page_Bxm[..., None] * PAGE + jnp.arange(PAGE) - lengths_B[:, None, None]
    new = known[..., None] & (source >= 0) & (source < counts_B[:, None, None])
    source = jnp.clip(source, 0, length - 1)

    def one(layer: LayerCache, part: LayerCache) -> LayerCache:
        rows = jnp.arange(len(index))[:, None, None]
        keys = part.keys.transpose(0, 3, 1, 2)[rows, source].transpose(0, 1, 3, 4, 2)  # [B, m, K, H, PAGE]
        values = part.values.transpose(0, 2, 1, 3)[rows, source].transpose(0, 1, 3, 2, 4)  # [B, m, K, PAGE, H]
        keys = jnp.where(new[:, :, None, None, :], keys, layer.keys[index])
        values = jnp.where(new[:, :, None, :, None], values, layer.values[index])
        return LayerCache(layer.keys.at[index].set(keys), layer.values.at[index].set(values))

    return tuple(one(layer, part) for layer, part in zip(pool, fresh, strict=True))


class Pages:
    """Which pages of a pool are free; `total` is the number of pages that streams may use."""

    def __init__(self, total: int):
        """All pages but page 0, which is not counted, are free."""
        self.total = total
        self._free = list(range(total, 0, -1))

    def __len__(self) -> int:
        """Number of free pages."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Takes free pages; raises ValueError when there are fewer."""
        if count > len(self._free):
            raise ValueError(f"pages: found {len(self._free)} free, expected {count}")
        return [self._free.pop() for _ in range(count)]

    def give(self, pages: list[int]) -> None:
        """Gives pages back."""
        self._free += reversed(pages)


def table_of(pages: list[list[int]], width: int, rows: int) -> Int[np.ndarray, "B n"]:
    """A table of `rows` rows of `width` pages; missing ones are page 0."""
    table = np.zeros((rows, width), np.int32)
    for row, own in zip(table, pages, strict=False):
        row[: len(own)] = own
    return table
