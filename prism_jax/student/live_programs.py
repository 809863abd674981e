"""The programs behind live streams, and the classes of sizes that they are compiled for.

Every program depends on three sizes: rows of a batch, pages per stream, and new tokens per row. Each is rounded up to
one of a few classes, so the number of programs is the product of small numbers, however streams grow. A program also
depends on the size of the pool, which grows in few steps. Each is compiled when it is first run, or before that in a
thread (`Programs.compile_behind`).

Dimensions: B batch, n pages per stream, L new tokens, P marked places, A answers.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from prism_jax.student.branches import NewTokens, row_mask
from prism_jax.student.kv_cache import Cache, Segment, read, read_states
from prism_jax.student.qwen3 import Params, Qwen3

_IDLE = 0.2  # seconds without a call after which programs are compiled behind: until then, more events may follow
_POLL = 0.05  # seconds after which a thread that waits looks again; a process that ends waits for it


def classes(smallest: int, largest: int, growth: int) -> tuple[int, ...]:
    """Sizes from `smallest` on, each `growth` times the one before, up to `largest`."""
    sizes = [min(smallest, largest)]
    while sizes[-1] < largest:
        sizes.append(min(sizes[-1] * growth, largest))
    return tuple(sizes)


def at_least(known: Sequence[int], size: int, growth: int) -> int:
    """The smallest class that holds `size`; beyond the largest, `growth` times it, and so on."""
    chosen = next((step for step in known if step >= size), known[-1])
    while chosen < size:
        chosen *= growth
    return chosen


@functools.partial(jax.jit, static_argnums=0)
def read_rows(
    model: Qwen3,
    params: Params,
    pool: Cache,
    table: Int[Array, "B n"],
    lengths: Int[Array, " B"],
    row: NewTokens,
    answers: Int[Array, " A"],
) -> tuple[Float[Array, "B P A"], Cache]:
    """Reads rows after their trunks, of which `lengths` tokens are in the pool; the pool is only read.

    Returns the logits of the tokens `answers` at the marked places, and keys and values of the new tokens. `row` holds
    the new tokens of each stream as `branches.lay_out` lays them out, stacked. Parameters are unstacked
    (`kv_cache.unstack_layers`).
    """
    trunk = Segment.first(pool, lengths, table)
    tokens, mask = jnp.asarray(row.tokens), jax.vmap(row_mask)(row)
    positions, places = lengths[:, None] + row.offsets, jnp.asarray(row.places)
    hidden, fresh = read(model, params, tokens, positions, mask, places, [trunk])
    rows = model.head(params)[answers]
    return hidden.astype(jnp.float32) @ rows.astype(jnp.float32).T, fresh


@functools.partial(jax.jit, static_argnums=(0, 6))
def state_rows(
    model: Qwen3,
    params: Params,
    pool: Cache,
    table: Int[Array, "B n"],
    lengths: Int[Array, " B"],
    row: NewTokens,
    at: tuple[int, ...],
) -> tuple[Float[Array, "B L width"], Cache]:
    """Reads rows after their trunks, as `read_rows` does, to the states of all new tokens after the blocks `at`.

    Returns the states in float32, as `kv_cache.read_states` lays them out, and keys and values of the new tokens. The
    marked places of the row are not read.
    """
    trunk = Segment.first(pool, lengths, table)
    tokens, mask = jnp.asarray(row.tokens), jax.vmap(row_mask)(row)
    states, fresh = read_states(model, params, tokens, lengths[:, None] + row.offsets, mask, at, [trunk])
    return states.astype(jnp.float32), fresh


def compiled(program: Any, *args: Any) -> Any:
    """Compiles a jitted function for the sizes of some arguments, without running it.

    An argument may be the `jax.ShapeDtypeStruct` of an array. Returns such a struct for each array that the function
    returns, placed where it will be.
    """
    made = program.lower(*args).compile()
    committed = any(getattr(leaf, "committed", False) for leaf in jax.tree.leaves(args))
    return jax.tree.map(
        lambda out, place: jax.ShapeDtypeStruct(out.shape, out.dtype, sharding=place if committed else None),
        made.out_info,
        made.output_shardings,
    )


def described(pool: Cache, pages: int) -> Cache:
    """The `jax.ShapeDtypeStruct` of each array of a pool of so many pages, as `compiled` takes it."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
            (pages, *leaf.shape[1:]), leaf.dtype, sharding=leaf.sharding if leaf.committed else None
        ),
        pool,
    )


class Programs:
    """Which programs are compiled: each by one thread, for which others that need it wait."""

    def __init__(self) -> None:
        """None is compiled yet."""
        self._locks: dict[Hashable, threading.Lock] = {}
        self._done: set[Hashable] = set()
        self._used = time.monotonic()

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, program: Hashable) -> bool:
        return program in self._done

    @contextlib.contextmanager
    def run(self, program: Hashable) -> Iterator[None]:
        """Runs a program, which is named by all that it is compiled for; one thread at a time may."""
        self._used = math.inf
        try:
            with self.compile(program):
                yield
        finally:
            self._used = time.monotonic()

    @contextlib.contextmanager
    def compile(self, program: Hashable) -> Iterator[None]:
        """Compiles a program, or runs it, alone if that is done for the first time."""
        if program in self._done:
            yield
            return
        with self._locks.setdefault(program, threading.Lock()):
            yield
            self._done.add(program)

    def compile_behind(self, compile_next: Callable[[], bool]) -> None:
        """Calls a method in a thread, while no program is run, until it finds nothing to compile and returns False.

        The thread also ends with the method's object or with the main thread, after at most one call: one that is
        killed while it compiles can take the process along.
        """
        kept = weakref.WeakMethod(compile_next)

        def work() -> None:
            while threading.main_thread().is_alive() and (method := kept()) is not None:
                wait = _IDLE - (time.monotonic() - self._used)
                if wait <= 0:
                    try:
                        if not method():
                            return
                    except Exception as error:  # of any kind: an event compiles what it needs itself, and raises it
                        logging.warning("programs are compiled only when they are needed from now on: %s", error)
                        return
                del method
                time.sleep(min(max(wait, 0.0), _POLL))

        threading.Thread(target=work, name="programs").start()


def place_beside(params: Params, pool: Cache) -> Cache:
    """Puts a pool on the devices of the parameters, if they were put there, as `weights.load` does.

    A program is compiled anew where one of its arguments has been put on a device, so the pool should not become such
    an argument with its first update.
    """
    leaf = jax.tree.leaves(params)[0]
    if not leaf.committed:
        return pool
    mesh = getattr(leaf.sharding, "mesh", None)
    return jax.device_put(pool, leaf.sharding if mesh is None else NamedSharding(mesh, PartitionSpec()))
