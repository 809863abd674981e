"""The paper's panels of judges, and one that shares no model with its teacher; each decides by majority.

    python -m prism_jax judge --config=configs/judges.py:paper --streams=IN.jsonl --votes=VOTES.jsonl \
        --out=LABELLED.jsonl --config.remote.budget=20

The argument is a name below. Needs: `pip install prism_jax[remote]`, a budget in US dollars, and the key of one
OpenAI-compatible gateway, through which all judges are reached, in the environment variable OPENROUTER_API_KEY. Another
gateway stands behind the name (`--config=configs/judges.py:paper,https://HOST/v1`); set `--config.endpoints.NAME.key`,
and `.model` where it uses other names; `--config.endpoints.NAME.base_url` moves a single judge. The prices below are
examples of mid-2025. Set `input_price` and `output_price` to yours, because the budget counts with them. `--dry_run`
prints the requests, tokens and cost beforehand.

`--config.prompt=official` asks in ProactiveBench's own form, which is read from the checkout `--config.source`. Answers
then begin with a thought: every judge gets room for `official_tokens` at least, and the cache keeps the whole answers.

Time: that of the slowest judge, with 8 requests under way at once per judge; at each step, every judge is asked about
silence and about each candidate.
Result: labelled streams; the paper reports 90.8 % agreement with people (kappa 0.75) for pool A, and 89.1 % (0.71) for
pool B and for its main panel, on 229 events. Of the independent one none is known; `--human` prints it.
"""

import dataclasses

from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.runtime.dataclass_config import to_config_dict
from prism_jax.streams.sources import local_proactivebench

GATEWAY = "https://openrouter.ai/api/v1"


def judge(model: str, input_price: float, output_price: float, **settings) -> EndpointConfig:
    """A judge at the gateway, with its prices in USD per million tokens."""
    prices = {"input_price": input_price, "output_price": output_price}
    return EndpointConfig(model=model, base_url=GATEWAY, key="OPENROUTER_API_KEY", **prices, **settings)


# Small limits on answers, which hold one boolean in our form, but where a model reasons before it answers.
JUDGES = {
    "deepseek_r1": judge(
        "deepseek/deepseek-r1", 0.55, 2.19, schema="none", temperature=0.6, max_tokens=8192, timeout=600.0
    ),
    "gpt_4o": judge("openai/gpt-4o", 2.5, 10.0, max_tokens=64),
    "claude_3_5_sonnet": judge("anthropic/claude-3.5-sonnet", 3.0, 15.0, schema="none", max_tokens=64),
    "gemini_2_5_flash": judge("google/gemini-2.5-flash", 0.3, 2.5, max_tokens=4096),
    "kimi_k2": judge("moonshotai/kimi-k2", 0.6, 2.5, schema="json_object", max_tokens=64),
    "llama_3_70b": judge("meta-llama/llama-3-70b-instruct", 0.3, 0.4, schema="none", max_tokens=64),
    "mistral_large": judge("mistralai/mistral-large-2411", 2.0, 6.0, schema="none", max_tokens=64),
}
PANELS = {
    "paper": ("ensemble", ("deepseek_r1", "gpt_4o", "claude_3_5_sonnet")),
    "pool_a": ("pool A", ("gpt_4o", "claude_3_5_sonnet", "gemini_2_5_flash")),
    "pool_b": ("pool B", ("deepseek_r1", "kimi_k2", "llama_3_70b")),
    "independent": ("independent", ("gemini_2_5_flash", "kimi_k2", "mistral_large")),
}
"""The paper's main panel, its pool of frontier judges and that of open ones, and a panel of other makers than those of
teacher, labels and student: in the paper DeepSeek-R1 is teacher, judge and baseline at once, and GPT-4o and Claude 3.5
Sonnet label both what the student learns from and what it is measured on."""


def get_config(panel: str = "paper"):
    """The panel of a name, at another gateway where its address stands behind the name and a comma."""
    panel, _, gateway = panel.partition(",")
    if panel not in PANELS:
        raise ValueError(f"panel: found {panel!r}, expected one of {', '.join(PANELS)}")
    name, judges = PANELS[panel]
    endpoints = {key: dataclasses.replace(JUDGES[key], base_url=gateway or GATEWAY) for key in judges}
    remote = RemoteConfig(cache="judges.sqlite")
    return to_config_dict(JudgesConfig(name=name, endpoints=endpoints, remote=remote, source=local_proactivebench()))
