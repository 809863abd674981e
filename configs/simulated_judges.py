"""Three judges of simulated users, behind the endpoint that simulated_users prints.

    python -m prism_jax.experiments.simulated_users --workdir=DIR
    python -m prism_jax judge --config=configs/simulated_judges.py:URL --streams=DIR/train.jsonl --votes=votes.jsonl \
        --out=judged.jsonl

Needs: `pip install prism_jax[remote]`, and no API key. URL is the address that the first command prints.
Time: one to three minutes for the 48,000 questions about 1,000 streams, on two CPU cores.
Result: labels that are right on 97 % of the questions, by the majority of three judges who are right on 90 %.
"""

from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.remote.endpoints import EndpointConfig, RemoteConfig
from prism_jax.runtime.dataclass_config import to_config_dict


def get_config(url: str = "http://127.0.0.1:8000/v1"):
    """Each judge is a model of its own, whose errors are independent of the others'."""
    judges = {
        f"judge_{number}": EndpointConfig(
            model=f"judge-{number}", base_url=url, max_tokens=64, input_price=0.0, output_price=0.0
        )
        for number in range(3)
    }
    return to_config_dict(JudgesConfig(endpoints=judges, remote=RemoteConfig(cache="simulated.sqlite")))
