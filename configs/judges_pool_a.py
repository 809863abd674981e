"""The paper's pool A of frontier judges: GPT-4o, Claude 3.5 Sonnet and Gemini 2.5 Flash, by majority.

    python -m prism_jax judge --config=configs/judges_pool_a.py --streams=IN.jsonl --votes=VOTES.jsonl \
        --out=LABELLED.jsonl --config.remote.budget=20

All judges are reached through one OpenAI-compatible gateway, whose key is in the environment variable
OPENROUTER_API_KEY. For another gateway, give its address as the config's argument
(`--config=configs/judges_pool_a.py:https://HOST/v1`) and set `--config.endpoints.NAME.key`, and `.model` where it uses
other names; `--config.endpoints.NAME.base_url` moves a single judge. The prices below are examples of mid-2025. Set
`input_price` and `output_price` to yours, because the budget counts with them. `--dry_run` prints the requests, tokens
and cost beforehand.

`--config.prompt=official` asks in ProactiveBench's own form, which is read from the checkout `--config.source`. Answers
then begin with a thought: every judge gets room for `official_tokens` at least, and the cache keeps the whole answers.

Time: that of the slowest judge, with 8 requests under way at once per judge; at each step, every judge is asked about
silence and about each candidate.
Result: labelled streams; the paper reports 90.8 % agreement with people, kappa 0.75, on 229 events.
"""

from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import local_proactivebench


def get_config(gateway: str = "https://openrouter.ai/api/v1"):
    """Small limits on answers, which hold one boolean in our form; Gemini may reason before it answers."""
    gateway = gateway or "https://openrouter.ai/api/v1"

    def endpoint(model: str, input_price: float, output_price: float, **settings) -> EndpointConfig:
        prices = {"input_price": input_price, "output_price": output_price}
        return EndpointConfig(model=model, base_url=gateway, key="OPENROUTER_API_KEY", **prices, **settings)

    return to_config_dict(
        JudgesConfig(
            name="pool A",
            endpoints={
                "gpt_4o": endpoint("openai/gpt-4o", 2.5, 10.0, max_tokens=64),
                "claude_3_5_sonnet": endpoint("anthropic/claude-3.5-sonnet", 3.0, 15.0, schema="none", max_tokens=64),
                "gemini_2_5_flash": endpoint("google/gemini-2.5-flash", 0.3, 2.5, max_tokens=4096),
            },
            remote=RemoteConfig(cache="judges.sqlite"),
            source=local_proactivebench(),
        )
    )
