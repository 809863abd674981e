"""The other side of benchmarks/student.py: transformers + PyTorch with our weights, as fast as they run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers.cache_utils import DynamicCache

from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.weights import save_hf
from prism_jax.training.config import TrainingConfig


def versions() -> str:
    return f"torch {torch.__version__}, transformers {transformers.__version__}"


def set_threads(count: int) -> None:
    torch.set_num_threads(count)


def product(x: np.ndarray, kernel: np.ndarray) -> Callable[[], torch.Tensor]:
    """The product of a linear layer, weights laid out as theirs are."""
    rows, weight = torch.tensor(x), torch.tensor(kernel.T.copy())

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.linear(rows, weight)

    return run


def load(config: StudentConfig, params: Any, attention: str) -> Any:
    """Their model with our parameters."""
    with tempfile.TemporaryDirectory() as folder:
        save_hf(folder, Qwen3(config), params)
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation=attention, dtype=torch.float32
        )


def fastest(config: StudentConfig, params: Any, run: Callable[[Any], Any]) -> Any:
    """The model under eager or sdpa attention, whichever runs faster."""
    seconds = {}
    for attention in ("eager", "sdpa"):
        model = load(config, params, attention)
        run(model)
        start = time.perf_counter()
        run(model)
        run(model)
        seconds[attention] = (time.perf_counter() - start, model)
    return min(seconds.values(), key=lambda pair: pair[0])[1]


def next_token_loss(model: Any, rows: np.ndarray) -> torch.Tensor:
    """Mean cross-entropy of every next token."""
    tokens = torch.tensor(rows, dtype=torch.long)
    logits = model(tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def decision_loss(yes: int, no: int) -> Callable[[Any, dict[str, np.ndarray]], torch.Tensor]:
    """Binary cross-entropy of both slots, from two rows of the head alone."""

    def loss(model: Any, rows: dict[str, np.ndarray]) -> torch.Tensor:
        tokens, places, labels = (torch.tensor(rows[name]) for name in ("tokens", "places", "labels"))
        hidden = model.model(tokens, use_cache=False).last_hidden_state
        marked = torch.gather(hidden, 1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        z = marked @ (model.lm_head.weight[yes] - model.lm_head.weight[no])
        per_slot = torch.nn.functional.binary_cross_entropy_with_logits(z, labels, reduction="none")
        return per_slot.mean(dim=0).sum()

    return loss


class Training:
    """Each call is one step of AdamW with clipping; `losses` remembers."""

    def __init__(self, config: StudentConfig, params: Any, training: TrainingConfig, loss: Callable, batch: Any):
        self.loss, self.batch, self.clip, self.losses = loss, batch, training.clip, []
        self.model = fastest(config, params, lambda model: self._backward(model.train()))
        self.model.zero_grad()
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        betas = (training.b1, training.b2)
        self.optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, betas=betas, fused=True)
        warmup = max(1, round(training.warmup * training.steps))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, step / warmup))

    def _backward(self, model: Any) -> float:
        loss = self.loss(model, self.batch)
        loss.backward()
        return loss.item()

    def __call__(self) -> None:
        self.losses.append(self._backward(self.model))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()


class Reader:
    """Prefill, decoding, and a stream with its own KV cache; without autograd."""

    def __init__(self, config: StudentConfig, params: Any):
        probe = torch.zeros((1, 64), dtype=torch.long)
        with torch.inference_mode():
            self.model = fastest(config, params, lambda model: model.eval()(probe, logits_to_keep=1))
        self.cache = DynamicCache()

    @torch.inference_mode()
    def _read(self, tokens: Any, cache: Any, keep: Any = 1) -> torch.Tensor:
        ids = torch.as_tensor(np.asarray(tokens), dtype=torch.long)
        return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits

    def prefill(self, tokens: np.ndarray) -> tuple[torch.Tensor, DynamicCache]:
        cache = DynamicCache()
        return self._read(tokens, cache), cache

    @torch.inference_mode()
    def _greedy(self, logits: torch.Tensor, cache: DynamicCache, count: int) -> torch.Tensor:
        """Writes `count` tokens, the first of which `logits` gives."""
        written = [logits[:, -1].argmax(dim=-1, keepdim=True)]
        for _ in range(count - 1):
            logits = self.model(written[-1], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            written.append(logits[:, -1].argmax(dim=-1, keepdim=True))
        return torch.cat(written, dim=1)

    def decode(self, tokens: np.ndarray, count: int) -> tuple[float, list[list[int]]]:
        """Seconds of writing alone, and what was written."""
        logits, cache = self.prefill(tokens)
        start = time.perf_counter()
        written = self._greedy(logits, cache, count)
        return time.perf_counter() - start, written.tolist()

    def open(self, system: Sequence[int]) -> None:
        self.cache = DynamicCache()
        self._read([system], self.cache)

    def decide(self, event: Sequence[int], branch: Sequence[int], places: Sequence[int], answers: list[int]) -> Any:
        """Reads an event and the branch behind it in one pass, then crops the branch off the cache."""
        keep = torch.tensor([len(event) + place for place in places])
        logits = self._read([[*event, *branch]], self.cache, keep)[0][:, answers].numpy()
        self.cache.crop(-len(branch))
        return logits

    def answer(self, event: Sequence[int], branch: Sequence[int], count: int) -> None:
        """Reads an event and the branch, writes an answer, and takes all of it back."""
        logits = self._read([[*event, *branch]], self.cache)
        self._greedy(logits, self.cache, count)  # which reads all but the last token it writes
        self.cache.crop(-(len(event) + len(branch) + count - 1))
