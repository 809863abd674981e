"""How an endpoint is reached and limited, and what all endpoints of a job share."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from prism_jax.runtime.dataclass_config import check_above, check_at_least

Schema = Literal["json_schema", "json_object", "none"]


@dataclass(frozen=True)
class EndpointConfig:
    """One model behind an OpenAI-compatible endpoint."""

    model: str  # the model's name at the endpoint
    base_url: str  # address up to and without `/chat/completions`, such as `https://api.openai.com/v1`
    # NAME of the environment variable that holds the API key, in capitals; empty if the endpoint needs none
    key: str = ""
    concurrency: int = 8  # most requests that are under way at once
    requests_per_minute: int = 0  # most requests that are sent per minute; 0 is no limit
    tokens_per_minute: int = 0  # most tokens of prompts and answers per minute; 0 is no limit
    window: float = 60.0  # seconds over which both limits are counted, in proportion to a minute
    timeout: float = 120.0  # seconds after which one attempt fails
    patience: float = 900.0  # seconds to retry a request while the endpoint is down or limits the rate
    # seconds before the first retry, unless the server asks for more; later waits double
    backoff: float = 0.5
    # How the JSON schema of an answer is asked for: `json_schema` where the server enforces it, `json_object` where it
    # only enforces JSON, `none` elsewhere. With the last two the schema stands in the system message.
    schema: Schema = "json_schema"
    max_tokens: int = 1024  # longest answer, in tokens, hidden reasoning included
    # what the endpoint calls that limit; newer models of OpenAI know only `max_completion_tokens`
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    # sampling temperature; None leaves it out of the request, for models that refuse it
    temperature: float | None = 0.0
    # seed of the sampling, one more at each later asking of the same, which would else be answered alike; None leaves
    # it out
    seed: int | None = None
    # USD per million prompt tokens; None takes it from the table in prism_jax/remote/prices.py
    input_price: float | None = None
    output_price: float | None = None  # USD per million tokens of answers; None takes it from the table
    # Whether the endpoint honours `Idempotency-Key`, so that an attempt whose answer was lost costs nothing when it is
    # repeated. Where it does not, the budget counts such an attempt at its worst case.
    idempotent: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model: found an empty name, expected the name of a model")
        if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}|", self.key):
            # What stands here by mistake may be the key itself, so the message does not repeat it.
            raise ValueError("key: found something else, expected the NAME, in capitals, of an environment variable")
        _check_address(self.base_url, bool(self.key))
        check_at_least(self, 1, "concurrency", "max_tokens")
        check_at_least(self, 0, "requests_per_minute", "tokens_per_minute", "patience")
        check_above(self, 0, "window", "timeout", "backoff")
        if self.temperature is not None:
            check_at_least(self, 0, "temperature")
        for name in ("input_price", "output_price"):
            if getattr(self, name) is not None:
                check_at_least(self, 0, name)
        if (self.input_price is None) != (self.output_price is None):
            raise ValueError("input_price: found only one price of two, expected input_price and output_price")


@dataclass(frozen=True)
class RemoteConfig:
    """What all endpoints of a job share."""

    # SQLite file of answers and spending; a rerun replays from it. Several processes may share it.
    cache: str = "remote.sqlite"
    # most USD that this cache file may ever record as spent; 0 only if every endpoint is known to be free
    budget: float = 0.0
    redact: bool = True  # whether personal data is cut from messages before they leave the machine

    def __post_init__(self) -> None:
        if not self.cache:
            raise ValueError("cache: found an empty path, expected the path of a SQLite file")
        check_at_least(self, 0, "budget")


def _check_address(address: str, has_key: bool) -> None:
    """Raises ValueError unless `address` is that of an endpoint, holds no credentials and would not expose the key."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ValueError("base_url: found a broken address, expected https://HOST/v1 or the like") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("base_url: found credentials or a query in it, expected a plain address; see key for API keys")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"base_url: found {address!r}, expected https://HOST/v1 or the like")
    if has_key and parts.scheme == "http" and not is_private(host):
        raise ValueError(f"base_url: found http://{host} with a key, expected https: the key would be sent in the open")


def is_private(host: str) -> bool:
    """Whether a host is this machine or one of a private network: by its address, or a name without a dot."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))
