"""The other side of benchmarks/student.py: transformers + PyTorch with the same weights, in their fastest setting.

It uses the faster of eager and sdpa attention, autograd in training only, and computes only the logits that are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from student_common import NO, YES, make_decisions, make_live_stream, random_rows, timed
from transformers.cache_utils import DynamicCache

from prism_jax.student.prompting.packing import Packed
from prism_jax.training.run_config import TrainingConfig


class Side:
    """The transformers model with the weights of a folder."""

    def __init__(self, folder: str, threads: int, training: TrainingConfig | None, dtype: str = "float32"):
        self.dtype = getattr(torch, dtype)  # in training, that of automatic mixed precision
        torch.set_num_threads(threads)
        self.folder, self.training, self.cache = folder, training, DynamicCache()
        if training is None:
            probe = torch.zeros((1, 64), dtype=torch.long)
            with torch.inference_mode():
                self.model = self._fastest(lambda model: model.eval()(probe, logits_to_keep=1))
            self.vocabulary = self.model.config.vocab_size
        else:
            self.vocabulary = transformers.AutoConfig.from_pretrained(folder).vocab_size

    def _fastest(self, run: Callable[[Any], Any]) -> Any:
        """Returns the model with whichever attention runs faster."""
        seconds = {}
        for attention in ("eager", "sdpa"):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                self.folder, attn_implementation=attention, dtype=torch.float32 if self.training else self.dtype
            )
            run(model)
            start = time.perf_counter()
            run(model)
            run(model)
            seconds[attention] = (time.perf_counter() - start, model)
        return min(seconds.values(), key=lambda pair: pair[0])[1]

    def prepare_next_token(self, rows: np.ndarray) -> None:
        """Prepares training on every next token of the rows."""
        tokens = torch.tensor(rows, dtype=torch.long)

        def loss(model: Any) -> torch.Tensor:
            logits = model(tokens[:, :-1], use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        self._prepare(loss)

    def prepare_rows(self) -> int:
        """Prepares training on some decisions, one sequence each; two slots, read with two rows of the head."""
        rows = _sequences(make_decisions(self.vocabulary).sample)
        tokens, places, labels = (torch.tensor(rows[name]) for name in ("tokens", "places", "labels"))

        def loss(model: Any) -> torch.Tensor:
            hidden = model.model(tokens, use_cache=False).last_hidden_state
            marked = torch.gather(hidden, 1, places[..., None].expand(-1, -1, hidden.shape[-1]))
            z = marked @ (model.lm_head.weight[YES] - model.lm_head.weight[NO])
            per_slot = torch.nn.functional.binary_cross_entropy_with_logits(z, labels, reduction="none")
            return per_slot.mean(dim=0).sum()

        self._prepare(loss)
        return len(tokens)

    def _prepare(self, loss: Callable[[Any], torch.Tensor]) -> None:
        """Prepares AdamW and clipping with our settings."""
        training = self.training

        def backward(model: Any) -> float:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                value = loss(model)
            value.backward()
            return value.item()

        self.backward, self.model = backward, self._fastest(lambda model: backward(model.train()))
        self.model.zero_grad()
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        betas = (training.b1, training.b2)
        self.optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, betas=betas, fused=True)
        warmup = max(1, round(training.warmup * training.steps))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, step / warmup))

    def step(self) -> tuple[float, float]:
        """Runs an optimizer step; returns its seconds and its loss."""

        def run() -> float:
            loss = self.backward(self.model)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            return loss

        return timed(run)

    @torch.inference_mode()
    def _read(self, tokens: Any, cache: Any, keep: Any = 1) -> torch.Tensor:
        ids = torch.as_tensor(np.asarray(tokens), dtype=torch.long)
        return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits

    def prefill(self, tokens: np.ndarray, new: int) -> float:
        """Prefills rows of one length; returns the seconds. The cache grows on demand, so `new` is unused."""
        return timed(lambda: self._read(tokens, DynamicCache()))[0]

    @torch.inference_mode()
    def _greedy(self, logits: torch.Tensor, cache: DynamicCache, count: int) -> torch.Tensor:
        """Decodes `count` tokens greedily; the first one comes from `logits`."""
        written = [logits[:, -1].argmax(dim=-1, keepdim=True)]
        for _ in range(count - 1):
            logits = self.model(written[-1], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            written.append(logits[:, -1].argmax(dim=-1, keepdim=True))
        return torch.cat(written, dim=1)

    def decode(self, tokens: np.ndarray, new: int) -> tuple[float, list[list[int]]]:
        """Decodes `new` tokens after prefilled rows; returns the seconds and the tokens."""
        cache = DynamicCache()
        logits = self._read(tokens, cache)
        seconds, written = timed(lambda: self._greedy(logits, cache, new))
        return seconds, written.tolist()

    @torch.inference_mode()
    def product(self, rows: int) -> float:
        """Computes the matrix product of a feed-forward layer; returns the seconds."""
        weight = self.model.model.layers[0].mlp.gate_proj.weight
        x = torch.tensor(random_rows(rows, weight.shape[1]))
        return timed(lambda: torch.nn.functional.linear(x, weight))[0]

    def open(self) -> None:
        """Opens the live stream."""
        self.live, self.cache = make_live_stream(self.vocabulary), DynamicCache()
        self.branch = [*self.live.head, *self.live.leaf]
        self._read([self.live.system], self.cache)

    def decide(self, number: int) -> tuple[float, np.ndarray]:
        """Reads an event and its branch in one pass; returns the seconds and the answers' logits at both slots."""
        event = self.live.events[number]
        slots = torch.tensor([len(event) + end - 1 for end in (len(self.live.head), len(self.branch))])

        def run() -> np.ndarray:
            logits = self._read([[*event, *self.branch]], self.cache, slots)[0][:, [YES, NO]].numpy()
            self.cache.crop(-len(self.branch))
            return logits

        return timed(run)

    def open_many(self, streams: int) -> None:
        """Opens live streams, each with its own cache."""
        self.live = make_live_stream(self.vocabulary)
        self.branch = [*self.live.head, *self.live.leaf]
        self.caches = [DynamicCache() for _ in range(streams)]
        for cache in self.caches:
            self._read([self.live.system], cache)

    def decide_many(self, number: int) -> tuple[float, np.ndarray]:
        """Reads an event on every stream and its branch; returns the seconds and the answers' logits at both slots."""

        def one(i: int, cache: DynamicCache) -> np.ndarray:
            event = self.live.events[(number + i) % len(self.live.events)]
            slots = torch.tensor([len(event) + end - 1 for end in (len(self.live.head), len(self.branch))])
            logits = self._read([[*event, *self.branch]], cache, slots)[0][:, [YES, NO]].numpy()
            cache.crop(-len(self.branch))
            return logits

        return timed(lambda: np.stack([one(i, cache) for i, cache in enumerate(self.caches)]))

    def write(self, number: int, count: int) -> float:
        """Reads an event and its branch and writes an answer; returns the seconds and restores the cache."""
        prompt = [*self.live.events[number], *self.branch]

        def run() -> None:
            logits = self._read([prompt], self.cache)
            self._greedy(logits, self.cache, count)  # reads all written tokens except the last
            self.cache.crop(-(len(prompt) + count - 1))

        return timed(run)[0]


def _sequences(rows: Sequence[Packed]) -> dict[str, np.ndarray]:
    """Turns rows of one decision each into right-padded sequences, with their two slots and labels."""
    whole = [[*row.trunk, *row.tokens] for row in rows]
    tokens = np.zeros((len(rows), max(map(len, whole))), np.int64)
    for out, ids in zip(tokens, whole, strict=True):
        out[: len(ids)] = ids
    places = [[len(row.trunk) + int(slot[0]) for slot in (row.need_slot, row.accept_slot)] for row in rows]
    labels = [[float(row.y_need[0]), float(row.y_accept[0])] for row in rows]
    return {"tokens": tokens, "places": np.array(places), "labels": np.array(labels, np.float32)}
