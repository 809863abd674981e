"""A teacher of simulated users, behind the endpoint that simulated_users prints.

    python -m prism_jax.experiments.simulated_users --workdir=DIR
    python -m prism_jax label --config=configs/simulated_teacher.py:URL --streams=DIR/train.jsonl --out=labelled.jsonl

Needs: `pip install prism_jax[remote]`, and no API key. URL is the address that the first command prints.
Time: about 15 seconds for the 8,000 steps of 1,000 streams, on two CPU cores.
Result: every step has the teacher's probabilities, fields and, where it would offer help, a response. The teacher
judges the constant offer, "an offer", as the demo's does (docs/distillation.md); `--config.prompt.offers=own` lets it
propose its own.
"""

from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.runtime.dataclass_config import to_config_dict


def get_config(url: str = "http://127.0.0.1:8000/v1"):
    """Costs nothing, so the budget stays at 0."""
    endpoint = EndpointConfig(model="teacher", base_url=url, input_price=0.0, output_price=0.0)
    remote, prompt = RemoteConfig(cache="simulated.sqlite"), PromptSettings(offers="given")
    return to_config_dict(TeacherConfig(endpoint=endpoint, remote=remote, prompt=prompt))
