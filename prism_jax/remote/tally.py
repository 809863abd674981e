"""What a job has asked for, received and paid so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prism_jax.remote.prices import Price


@dataclass
class Tally:
    """Counts of a job, over all its endpoints.

    Attributes:
      requests: Requests that were made, those from the cache included.
      cached: Requests that the cache answered.
      failed: Requests that ended without an answer.
      retried: Attempts that failed and were repeated.
      resent: Requests that an earlier process had sent when it was killed, and that were sent again.
      prompt_tokens: Tokens of prompts that this job paid for.
      completion_tokens: Tokens of answers that this job paid for.
      cost: USD that this job paid; in a dry run, what it would pay if every answer had its expected length.
      worst: In a dry run, USD that it would pay if every answer were as long as allowed.
      prices: The price of each model that the job asks.
      dry: Whether this is a dry run, in which nothing is sent.
    """

    requests: int = 0
    cached: int = 0
    failed: int = 0
    retried: int = 0
    resent: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    worst: float = 0.0
    prices: dict[str, Price] = field(default_factory=dict)
    dry: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the job started."""
        return time.monotonic() - self.started

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
        return tuple(lines)
