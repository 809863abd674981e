"""What a token costs, by host and model, in USD per million tokens."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from prism_jax.remote.config import EndpointConfig

MILLION = 1_000_000


class Price(NamedTuple):
    """USD per million tokens of prompts and of answers."""

    input: float
    output: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD for so many tokens."""
        return (self.input * prompt_tokens + self.output * completion_tokens) / MILLION


PRICES: dict[tuple[str, str], Price] = {
    ("api.openai.com", "gpt-4o"): Price(2.50, 10.00),
    ("api.openai.com", "gpt-4o-mini"): Price(0.15, 0.60),
}


def price_of(endpoint: EndpointConfig) -> Price:
    """The price of an endpoint's model: as its config states it, or else from the table.

    Raises:
      ValueError: if neither knows it.
    """
    if endpoint.input_price is not None and endpoint.output_price is not None:
        return Price(endpoint.input_price, endpoint.output_price)
    host = urlsplit(endpoint.base_url).hostname or ""
    found = PRICES.get((host, endpoint.model))
    if found is None:
        raise ValueError(
            f"input_price: found no price of model {endpoint.model!r} at {host}, expected input_price and output_price "
            "in its section (USD per million tokens; 0 and 0 for a server of your own)"
        )
    return found
