"""The paper's teacher, DeepSeek-R1, behind an OpenAI-compatible endpoint.

    python -m prism_jax label --config=configs/teacher.py --streams=unlabelled.jsonl --out=labelled.jsonl --dry_run

Needs: the API key in the environment variable DEEPSEEK_API_KEY, a budget in US dollars (`--config.remote.budget=20`),
and `pip install prism_jax[remote]`. Any other endpoint will do:
`--config.endpoint.base_url=http://localhost:8000/v1 --config.endpoint.model=NAME --config.endpoint.key=`, with its
prices, which a free one needs too: `--config.endpoint.input_price=0.0 --config.endpoint.output_price=0.0`.
Time: one answer of the teacher per step, 8 at once.
Result: every step has what the teacher would propose, its probabilities, the fields of the slow pass and, where it
would speak, a response. Offers that the streams list are dropped; `--config.prompt.offers=given` has them judged.
`--dry_run` states the cost; `--config.remote.budget` (US dollars) is never exceeded.
"""

from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.runtime.dataclass_config import to_config_dict


def get_config():
    """The model's hidden reasoning counts as tokens of its answer, so the limit is generous."""
    endpoint = EndpointConfig(
        model="deepseek-reasoner",
        base_url="https://api.deepseek.com/v1",
        key="DEEPSEEK_API_KEY",
        schema="json_object",
        max_tokens=8192,
        temperature=None,
    )
    return to_config_dict(TeacherConfig(endpoint=endpoint))
