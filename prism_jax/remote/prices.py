"""What a token costs, by host and model: USD per million tokens, at the vendor's list price without discounts.

Each price carries the month in which it was read. The vendors' pages: openai.com/api/pricing,
platform.claude.com/docs/en/about-claude/pricing, ai.google.dev/gemini-api/docs/pricing and
api-docs.deepseek.com/quick_start/pricing. Where a model costs more for long prompts, its row is the one for short ones.
A vendor changes prices without notice and another host of the same model has its own, so a price that must be right is
stated in the endpoint's section (`input_price`, `output_price`), which precedes this table.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from prism_jax.remote.endpoints import EndpointConfig

MILLION = 1_000_000


class Price(NamedTuple):
    """USD per million tokens of prompts and of answers, and when that was read: a month, or `config`."""

    input: float
    output: float
    read: str

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD for so many tokens."""
        return (self.input * prompt_tokens + self.output * completion_tokens) / MILLION


PRICES: dict[tuple[str, str], Price] = {
    ("api.openai.com", "gpt-4o"): Price(2.50, 10.00, "2026-04"),
    ("api.openai.com", "gpt-4o-mini"): Price(0.15, 0.60, "2026-04"),
    ("api.openai.com", "gpt-4.1"): Price(2.00, 8.00, "2026-04"),
    ("api.openai.com", "gpt-4.1-mini"): Price(0.40, 1.60, "2026-04"),
    ("api.openai.com", "gpt-4.1-nano"): Price(0.10, 0.40, "2026-04"),
    ("api.openai.com", "o3"): Price(2.00, 8.00, "2026-04"),
    ("api.anthropic.com", "claude-3-5-sonnet-20241022"): Price(3.00, 15.00, "2024-10"),
    ("api.anthropic.com", "claude-sonnet-4-5"): Price(3.00, 15.00, "2025-11"),
    ("api.anthropic.com", "claude-haiku-4-5"): Price(1.00, 5.00, "2026-10"),
    ("api.anthropic.com", "claude-sonnet-5"): Price(2.00, 10.00, "2026-10"),
    ("api.anthropic.com", "claude-sonnet-5-5"): Price(2.00, 10.00, "2026-10"),
    ("api.anthropic.com", "claude-opus-5"): Price(5.00, 25.00, "2026-10"),
    ("generativelanguage.googleapis.com", "gemini-2.5-flash"): Price(0.30, 2.50, "2025-06"),
    ("api.deepseek.com", "deepseek-chat"): Price(0.56, 1.68, "2025-09"),
    ("api.deepseek.com", "deepseek-reasoner"): Price(0.56, 1.68, "2025-09"),
}


def price_of(endpoint: EndpointConfig) -> Price:
    """The price of an endpoint's model, as its config states it, or else from the table; an unknown one is an error."""
    if endpoint.input_price is not None and endpoint.output_price is not None:
        return Price(endpoint.input_price, endpoint.output_price, "config")
    host = urlsplit(endpoint.base_url).hostname or ""
    price = PRICES.get((host, endpoint.model))
    if price is None:
        raise ValueError(
            f"input_price: found no price of model {endpoint.model!r} at {host}, expected input_price and output_price "
            "in its section (USD per million tokens; 0 and 0 for a server of your own)"
        )
    return price
