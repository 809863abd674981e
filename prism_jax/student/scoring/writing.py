"""Writes constrained text on many branches of many streams, in batches: the fields of the slow pass, and responses.

The trunks of some streams are read once, as a batch, and every branch continues its trunk up to the newest event that
its decision sees. Trunks and branches are padded to buckets, so few programs are compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from prism_jax.student.branches import bucket
from prism_jax.student.constrained import DeviceAutomaton, Span, room, write_spans
from prism_jax.student.kv_cache import Cache, Segment, read_prompts, unstack_layers
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.scoring.grammar import Grammar, over_tokens
from prism_jax.student.scoring.student import Student
from prism_jax.student.start import branch_off

_ROWS = 4  # branches per batch, for each stream of a batch


class Continued(NamedTuple):
    """A trunk, and the branches off it to be continued."""

    trunk: Int[np.ndarray, " T"]  # token ids
    branches: Sequence[tuple[int, Sequence[int]]]  # number of trunk tokens that each sees, and its own token ids


class Writer:
    """Writes text on branches, greedily; `batch` is the number of trunks per batch."""

    def __init__(self, student: Student, batch: int):
        """Keeps a copy of the parameters, with the layers unstacked."""
        self.model, self.template, self.batch = student.model, student.template, batch
        self._params = unstack_layers(student.params, self.model.config.compute)
        tokenizer, size = self.template.tokenizer, self.model.config.vocab_size
        self._automaton = functools.cache(lambda grammar: DeviceAutomaton(over_tokens(grammar, tokenizer, size)))

    def write(self, work: Sequence[Continued], spans: Sequence[Span], grammar: Grammar) -> list[list[list[str]]]:
        """Continues every branch by the spans; returns for every trunk and branch the text of each span.

        A branch does not include the first span's forced tokens. The grammar is that of the free text of every span.
        """
        written: list[list[list[str]]] = [[] for _ in work]
        # Trunks of similar length share a batch, so little of it is padding.
        order = sorted((i for i, trunk in enumerate(work) if trunk.branches), key=lambda i: -len(work[i].trunk))
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            trunks, lengths = _pad([work[i].trunk for i in chosen], self.batch, 64)
            cache = _read_trunks(self.model, self._params, trunks, lengths)
            rows = [(i, *branch) for i, index in enumerate(chosen) for branch in work[index].branches]
            for trunk, texts in zip((row[0] for row in rows), self._rows(cache, rows, spans, grammar), strict=True):
                written[chosen[trunk]].append(texts)
        return written

    def _rows(
        self, cache: Cache, rows: Sequence[tuple[int, int, Sequence[int]]], spans: Sequence[Span], grammar: Grammar
    ) -> Iterator[list[str]]:
        """Yields the texts of branches, given as (trunk, visible tokens, ids), in order."""
        first, size = list(spans[0].forced), self.batch * _ROWS
        for start in range(0, len(rows), size):
            group = list(rows[start : start + size])
            full = group + group[:1] * (size - len(group))  # one shape, whatever the number of rows
            tokens, counts = _pad([[*ids, *first] for _, _, ids in full], size)
            own, seen = (np.array([row[k] for row in full], np.int32) for k in (0, 1))
            trunk = Segment.first(cache, seen, own[:, None])
            begin = branch_off(self.model, self._params, trunk, tokens, counts, room(spans))
            texts = write_spans(self.model, self._params, begin, spans, self._automaton(grammar))
            for ids in texts[: len(group)]:
                yield [self.template.tokenizer.decode(part) for part in ids]


def _pad(rows: Sequence[Sequence[int] | np.ndarray], count: int, smallest: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows on the right to a bucket, and to `count` rows of one token; returns them and their lengths."""
    lengths = np.array([*map(len, rows), *[1] * (count - len(rows))], np.int32)
    padded = np.zeros((count, bucket(int(lengths.max()), smallest)), np.int32)
    for row, ids in zip(padded, rows, strict=False):
        row[: len(ids)] = ids
    return padded, lengths


@functools.partial(jax.jit, static_argnums=0)
def _read_trunks(model: Qwen3, params: Params, tokens: Int[Array, "N T"], lengths: Int[Array, " N"]) -> Cache:
    return read_prompts(model, params, tokens, lengths)[1]
