"""How each inference engine is asked for the two answers at a slot, and what its answer must hold.

Prompts are token ids, and so is what comes back: the engine reads no text of an event, so none changes which tokens are
read. An answer that lacks one of the two tokens, or is of another prompt than was sent, is an error, and nothing takes
its place. Of the routes that an engine has, each class names the one that gives both answers at once and says how many
tokens it read.
"""

from __future__ import annotations

import abc
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prism_jax.remote.connections import JsonEndpoint
from prism_jax.runtime.shown_text import shown_name

LEAST = -9999.0
"""What vLLM gives as the log-probability of a token to which it has none."""
BIAS = 100.0
"""Added to both answers in llama.cpp's server, so that no other token is among the two most probable."""


_BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading an answer of another form than expected can raise."""


class EngineError(ValueError):
    """What an engine serves or answers cannot be used; the message names the route, what was found and expected."""


class Served(NamedTuple):
    """What an engine says of itself."""

    model: str
    context: int | None  # most tokens of a prompt and what follows it; None where it does not say
    vocabulary: int | None  # number of token ids; None where it does not say
    slots: int  # number of prompts whose keys and values it keeps apart by number; 0 where it has no such numbers


class SlotReading(NamedTuple):
    """What an engine read at the end of one prompt."""

    z: float  # log-odds of the two answers, z_yes - z_no
    cached: int | None  # number of the prompt's tokens that were cached; None where the engine does not say
    model: str | None = None  # the name in the answer; None where it has none


class Route(abc.ABC):
    """One engine."""

    path: str  # the route that reads a slot, for messages
    needs: str  # what of the engine it uses, for messages
    beside: int  # tokens of the engine's context that a prompt cannot take
    tokenizing: tuple[str, dict[str, bool]]  # where /tokenize expects the text, and how it reads it

    def __init__(self, endpoint: JsonEndpoint) -> None:
        self._endpoint = endpoint

    @property
    def address(self) -> str:
        """The URL of the engine."""
        return self._endpoint.endpoint.base_url

    @property
    def breaks(self) -> int:
        """See `JsonEndpoint.breaks`."""
        return self._endpoint.breaks

    @abc.abstractmethod
    async def served(self) -> Served:
        """What the engine says of itself."""

    async def tokens(self, text: str) -> list[int]:
        """The ids of a text, special tokens included."""
        name, how = self.tokenizing
        answer = await self._endpoint.ask("/tokenize", {name: text, **how})
        with _form("/tokenize", "an engine that has it"):
            return [int(token) for token in answer["tokens"]]

    @abc.abstractmethod
    def _asked(self, prompt: list[int], yes: int, no: int, slot: int, fresh: bool) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _found(self, answer: Any) -> tuple[dict[int, float], int, Any]:
        """Log-probabilities by token, how many tokens the prompt had, and how many of them were cached."""

    async def read(self, prompt: Sequence[int], yes: int, no: int, slot: int, *, fresh: bool = False) -> SlotReading:
        """Reads the log-odds of two tokens after a prompt.

        `slot` is where keys and values of the prompt's stream are kept; `fresh` uses none of an earlier prompt, where
        the engine can be asked for that.

        Raises:
          EngineError: for an answer that cannot be used.
          TransientError, RejectedError, EndpointError: if there is none.
        """
        answer = await self._endpoint.ask(self.path, self._asked(list(prompt), yes, no, slot, fresh))
        with _form(self.path, self.needs):
            found, read, cached = self._found(answer)
            model = _name(answer.get("model"))
        if read != len(prompt):
            raise EngineError(
                f"{self.path}: found a prompt of {read} tokens, expected the {len(prompt)} that were sent: raise the "
                "engine's context, or lower --context"
            )
        return SlotReading(_log_odds(self.path, found, yes, no), cached if type(cached) is int else None, model)


class LlamaCpp(Route):
    """llama.cpp's server. The probabilities after sampling are those of the two answers alone, by equal biases."""

    path, needs = "/completion", "post_sampling_probs and n_probs"
    beside = 1
    tokenizing = "content", {"add_special": False, "parse_special": True}

    async def served(self) -> Served:
        """See `Route.served`."""
        props, models = await self._endpoint.ask("/props"), await self._endpoint.ask("/v1/models")
        with _form("/props and /v1/models", "llama.cpp's server"):
            one = models["data"][0]
            context = int(props["default_generation_settings"]["n_ctx"])
            return Served(_name(one["id"]) or "", context, int(one["meta"]["n_vocab"]), int(props["total_slots"]))

    def _asked(self, prompt: list[int], yes: int, no: int, slot: int, fresh: bool) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "n_predict": 1,
            "temperature": 1.0,
            "samplers": ["temperature"],
            "n_probs": 2,
            "post_sampling_probs": True,
            "logit_bias": [[yes, BIAS], [no, BIAS]],
            "cache_prompt": not fresh,
            "id_slot": slot,
        }

    def _found(self, answer: Any) -> tuple[dict[int, float], int, Any]:
        rows = answer["completion_probabilities"][0]["top_probs"]
        found = {int(row["id"]): math.log(row["prob"]) if row["prob"] > 0 else -math.inf for row in rows}
        return found, int(answer["tokens_evaluated"]), int(answer["timings"]["cache_n"])


class _AsOpenAI(Route):
    """What vLLM and SGLang have in common: their caches of prefixes have no slots and cannot be left out."""

    tokenizing = "prompt", {"add_special_tokens": False}

    async def served(self) -> Served:
        """See `Route.served`."""
        models = await self._endpoint.ask("/v1/models")
        with _form("/v1/models", "vLLM's or SGLang's server"):
            one = models["data"][0]
            context = one.get("max_model_len")
            return Served(_name(one["id"]) or "", None if context is None else int(context), None, 0)


class Vllm(_AsOpenAI):
    """vLLM's server. /generative_scoring is not asked: it gives one probability, and cuts long prompts in silence."""

    path, needs = "/v1/completions", "logprob_token_ids and return_tokens_as_token_ids"
    beside = 1

    def _asked(self, prompt: list[int], yes: int, no: int, slot: int, fresh: bool) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "max_tokens": 1,
            "temperature": 1.0,
            "logprobs": 1,
            "logprob_token_ids": [yes, no],
            "return_tokens_as_token_ids": True,
        }

    def _found(self, answer: Any) -> tuple[dict[int, float], int, Any]:
        rows = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        found = {int(name.removeprefix("token_id:")): float(value) for name, value in rows.items()}
        usage = answer["usage"]
        return found, int(usage["prompt_tokens"]), (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


class Sglang(_AsOpenAI):
    """SGLang's server. /v1/score gives the same numbers, but not how many tokens were cached."""

    path, needs = "/generate", "return_logprob and token_ids_logprob"
    beside = 7  # the next token, and six that its scheduler keeps

    def _asked(self, prompt: list[int], yes: int, no: int, slot: int, fresh: bool) -> dict[str, Any]:
        return {
            "input_ids": prompt,
            "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": -1,
            "token_ids_logprob": [yes, no],
        }

    def _found(self, answer: Any) -> tuple[dict[int, float], int, Any]:
        about = answer["meta_info"]
        found = {int(token): float(value) for value, token, *_ in about["output_token_ids_logprobs"][0]}
        return found, int(about["prompt_tokens"]), about.get("cached_tokens")


ROUTES: Mapping[str, type[Route]] = {
    "llamacpp": LlamaCpp,
    "vllm": Vllm,
    "sglang": Sglang,
}
"""The engines by their names in --engine."""


def _name(value: Any) -> str | None:
    """A name that a server states, in one line that can be shown; None where it states none."""
    return None if value is None else shown_name(str(value))


@contextlib.contextmanager
def _form(path: str, needed: str) -> Iterator[None]:
    """Raises EngineError where an answer has another form than is read inside."""
    try:
        yield
    except _BROKEN as error:
        what = f"no {error}" if isinstance(error, KeyError) else type(error).__name__
        raise EngineError(f"{path}: found another answer than expected ({what}): it needs {needed}") from error


def _log_odds(path: str, found: Mapping[int, float], yes: int, no: int) -> float:
    """Log p(yes) - log p(no), where the engine gave both."""
    for token in (yes, no):
        if token not in found:
            raise EngineError(f"{path}: found no probability of token {token}, expected those of {yes} and {no}")
        if not LEAST < found[token] <= 0:
            raise EngineError(
                f"{path}: found the log-probability {found[token]:g} of token {token}, expected one from {LEAST:g} to 0"
            )
    return found[yes] - found[no]
