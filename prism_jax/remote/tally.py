"""What a job has asked for, received and paid so far."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from absl import logging

from prism_jax.remote.prices import Price
from prism_jax.runtime.shown_text import shown_name

MOST_NAMES = 100
"""Names of models per endpoint that are told apart."""


@dataclass
class Tally:
    """Counts of a job, over all its endpoints."""

    requests: int = 0  # requests that were made, those from the cache included
    cached: int = 0  # requests that the cache answered
    failed: int = 0  # requests that ended without an answer
    retried: int = 0  # attempts that failed and were repeated
    resent: int = 0  # requests that an earlier process had sent when it was killed, and that were sent again
    prompt_tokens: int = 0  # tokens of prompts that this job paid for
    completion_tokens: int = 0  # tokens of answers that this job paid for
    cost: float = 0.0  # USD that this job paid; in a dry run, what it would pay if every answer had its expected length
    worst: float = 0.0  # in a dry run, USD that it would pay if every answer were as long as allowed
    prices: dict[str, Price] = field(default_factory=dict)  # the price of each model that the job asks
    # the names that the answers state, by the model and the address that were asked
    names: dict[str, set[str]] = field(default_factory=dict)
    dry: bool = False  # whether this is a dry run, in which nothing is sent
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the job started."""
        return time.monotonic() - self.started

    def count_failure(self, problem: str | None) -> None:
        """Counts a request that ended without an answer; none if there is no problem."""
        self.failed += problem is not None

    def count_name(self, asked: str, name: str) -> None:
        """Notes the name of a model that an answer states, if any."""
        names = self.names.setdefault(asked, set())
        if name and len(names) < MOST_NAMES and (shown := shown_name(name)) not in names:
            names.add(shown)
            if len(names) == 2:
                logging.warning("%s", next(words for words in self.mixed if words.startswith(f"{asked}: ")))

    @property
    def mixed(self) -> tuple[str, ...]:
        """A sentence on each endpoint whose answers name several models."""
        return tuple(
            f"{asked}: found answers of {len(names)} models ({', '.join(sorted(names)[:3])}), expected those of one"
            for asked, names in self.names.items()
            if len(names) > 1
        )

    def check_answered(self, questions: int, missing: Counter[str]) -> None:
        """Raises RuntimeError if questions were asked and all are among those without a valid answer, by problem."""
        if questions and questions == missing.total():
            none_came = self.failed == self.requests
            what = f"answer to any of {self.requests:,} requests" if none_came else "valid answer to any question"
            problem, count = missing.most_common(1)[0]
            raise RuntimeError(f"found no {what}, expected at least one; at {count:,} of {questions:,}: {problem}")

    def lines(self) -> tuple[str, ...]:
        """The summary, in lines for the terminal."""
        tokens = f"{self.prompt_tokens:,} prompt tokens, {self.completion_tokens:,} answer tokens"
        if self.dry:
            return (
                f"dry run: {self.requests:,} requests, {self.cached:,} of them cached; nothing was sent",
                f"estimate: {tokens}, {self.cost:.4f} USD; at most {self.worst:.4f} USD without retries",
                *(
                    f"price of {model}: {price.input:g} and {price.output:g} USD per million tokens ({price.read})"
                    for model, price in self.prices.items()
                ),
            )
        lines = [
            f"{self.requests:,} requests: {self.cached:,} cached, {self.failed:,} failed, {self.retried:,} retries",
            f"{tokens}, {self.cost:.4f} USD, {self.seconds:.0f} s",
        ]
        if self.resent:
            lines.append(f"{self.resent:,} requests were under way when an earlier run ended; they were sent again")
        return (*lines, *self.mixed)
