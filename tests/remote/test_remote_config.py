"""Endpoints in config files, and their prices."""

import dataclasses
import datetime
import re
from collections.abc import Mapping

import pytest

from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.remote.prices import PRICES, price_of
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict, to_config_dict


@dataclasses.dataclass(frozen=True)
class Job:
    endpoints: Mapping[str, EndpointConfig]
    remote: RemoteConfig = dataclasses.field(default_factory=RemoteConfig)


def test_a_config_with_endpoints_round_trips():
    job = Job(
        {"b": EndpointConfig("gpt-4o", "https://api.openai.com/v1", seed=3), "a": EndpointConfig("m", "http://h/v1")}
    )
    assert from_config_dict(Job, to_config_dict(job)) == job


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": ""}, "model: found an empty name, expected the name of a model"),
        ({"schema": "yaml"}, "schema: found 'yaml' (str), expected one of 'json_schema', 'json_object', 'none'"),
        ({"concurrency": 0}, "concurrency: found 0, expected at least 1"),
        ({"patience": -1.0}, "patience: found -1.0, expected at least 0"),
        ({"timeout": 0.0}, "timeout: found 0.0, expected above 0"),
        ({"temperature": -0.1}, "temperature: found -0.1, expected at least 0"),
        ({"input_price": 1.0}, "input_price: found only one price of two, expected input_price and output_price"),
        ({"input_price": -1.0, "output_price": 1.0}, "input_price: found -1.0, expected at least 0"),
        ({"base_url": "api.openai.com"}, "base_url: found 'api.openai.com', expected https://HOST/v1 or the like"),
    ],
)
def test_bad_endpoints_are_one_line_errors_that_name_the_key(change, message):
    tree = {"endpoints": {"judge": {"model": "m", "base_url": "https://h/v1"} | change}}
    with pytest.raises(ConfigError, match=f"^{re.escape('config.endpoints.judge.' + message)}$"):
        from_config_dict(Job, tree)


def test_a_price_is_that_of_the_host_and_the_model():
    assert price_of(EndpointConfig("gpt-4o", "https://api.openai.com/v1/")).of(10**6, 10**6) == 12.5
    with pytest.raises(ValueError, match=r"no price of model 'gpt-4o' at proxy\.example\.org, expected input_price"):
        price_of(EndpointConfig("gpt-4o", "https://proxy.example.org/v1"))
    stated = EndpointConfig("gpt-4o", "https://api.openai.com/v1", input_price=7.0, output_price=0.0)
    assert price_of(stated) == (7.0, 0.0, "config")


def test_every_price_is_dated_and_possible():
    for price in PRICES.values():
        assert datetime.date(2023, 1, 1) <= datetime.date.fromisoformat(f"{price.read}-01")
        assert 0 < price.input <= price.output < 1000
