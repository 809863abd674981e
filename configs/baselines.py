"""Models of the paper's table 1 without published traces, prompted as ProactiveBench's agent.

    python -m prism_jax label --agent --config=configs/baselines.py:deepseek_r1 --source=DIR \
        --workdir=traces/deepseek_r1

The argument is a name below. DIR is a checkout of the benchmark's repository, whose prompts are read; without
--source, ours are used. Needs: `pip install prism_jax[remote]`, a budget in US dollars (`--config.remote.budget=20`),
and the key of one OpenAI-compatible gateway in the environment variable OPENROUTER_API_KEY; a model that is served
here, such as an export or vLLM, takes `--config.endpoint.base_url=http://localhost:8000/v1 --config.endpoint.key=
--config.endpoint.model=NAME` and prices of 0. The prices below are examples of mid-2025.

Time: the events of a stream follow one another, and streams are asked side by side.
Result: a file per stream in the layout of the benchmark's `eval/traces_new`.
"""

from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.runtime.dataclass_config import to_config_dict

MODELS = {
    "deepseek_r1": ("deepseek/deepseek-r1", 0.55, 2.19, 8192),
    "qwen3_8b": ("qwen/qwen3-8b", 0.05, 0.40, 8192),
}
"""Name at the gateway, USD per million tokens of prompts and of answers, and the longest answer, reasoning included."""


def get_config(name: str = "deepseek_r1"):
    """Each attempt has the temperature of the benchmark's script, so none stands here."""
    if name not in MODELS:
        raise ValueError(f"name: found {name!r}, expected one of {', '.join(MODELS)}")
    model, input_price, output_price, max_tokens = MODELS[name]
    endpoint = EndpointConfig(
        model=model,
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        schema="none",
        max_tokens=max_tokens,
        timeout=600.0,
        input_price=input_price,
        output_price=output_price,
    )
    return to_config_dict(TeacherConfig(endpoint=endpoint, remote=RemoteConfig(cache="baselines.sqlite")))
