"""The paper from the benchmark's own files to its tables, by our commands and configs; or a rehearsal of it.

    launch/paper.sh --rehearse --workdir=runs/rehearsal
    launch/paper.sh --source=DIR --agent_data=[DOMAIN=]FILE --weights=DIR --budget=USD --workdir=runs/paper

The teacher says at every step what it would propose, and judges judge that; curation keeps the best decisions, every
pathway of ablation C trains, each student writes its own texts, and judges judge those: these verdicts calibrate and
test it. Baselines are prompted as the benchmark prompts them, and the traces that it published are judged anew. The
last output is a list of the paper's tables and figures. What is complete is never repeated: a call that was killed
resumes at the stage, and in it at the answer or the checkpoint.

--source is a checkout of ProactiveBench's repository, --agent_data its training data in chat form (repeated; with a
domain, one of them can be held out), --weights Qwen3-8B as published on Hugging Face, --human files that annotators
downloaded from people.html. `--gpus=8` trains on eight GPUs, not one.

A rehearsal takes the same stages and configs on a miniature checkout of simulated users, a fake endpoint that answers
for the models of the configs, and a small random Qwen3 with the real tokenizer (`--tokenizer`), and prints beside each
stage what the real one takes: `prism_jax.experiments.real_costs`. docs/paper.md explains both.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence

import jax
from absl import flags
from etils import epath

from prism_jax.experiments import real_costs
from prism_jax.experiments.miniature import ANNOTATORS, Checkout
from prism_jax.experiments.paper_stages import Inputs, outcome, pathways_of, stages
from prism_jax.experiments.simulated_users import ANSWERS, FILES, served
from prism_jax.experiments.stages import Stage, run_stages
from prism_jax.report.table import Table
from prism_jax.runtime.files import new_folder, read_object, write_json
from prism_jax.runtime.lock import only_training
from prism_jax.streams.jsonl import read_streams
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig, make_tokenizer
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf
from prism_jax.training.start import HOW_IT_RUNS

SMALL = StudentConfig(
    hidden_dim=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    mlp_dim=64,
    rope_theta=1e6,
    tied=False,
    initializer_range=0.3,
    max_positions=40_960,
)
"""The student of a rehearsal: random."""
USERS = (
    *("--population=items", "--responses=1", "--min_events=4", "--max_events=6"),
    *("--train=36", "--calibration=1", "--held_out=20", "--accuracy=0.8"),
)
JUDGES = (
    *("deepseek/deepseek-r1", "openai/gpt-4o", "anthropic/claude-3.5-sonnet", "google/gemini-2.5-flash"),
    *("moonshotai/kimi-k2", "meta-llama/llama-3-70b-instruct"),
)
AGENTS = ("deepseek/deepseek-r1", "qwen/qwen3-8b")
MODELS = ("--teacher=deepseek-reasoner", f"--judges={','.join(JUDGES)}", f"--agents={','.join(AGENTS)}")
"""The models of configs/teacher.py, of the judges' configs and of configs/baselines.py."""
REHEARSED = 24
"""Number of decisions that curation keeps in a rehearsal."""
SAMPLE, SMALL_SAMPLE = 229, 60
"""Events on the page for people: the paper's number, and that of a rehearsal."""
KEYS = {"DEEPSEEK_API_KEY": "none-needed", "OPENROUTER_API_KEY": "none-needed"}
SHORT = ("--config.packing.context=640", "--config.writing.field_tokens=4", "--config.writing.response_tokens=4")


def random_weights(folder: epath.Path, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Writes a small random Qwen3 with a tokenizer, as Hugging Face names them, unless it is there.

    Returns the flags of a training by which a second stage expects this student.
    """
    student = dataclasses.replace(SMALL, vocab_size=tokenizer.size)
    model, sizes = Qwen3(student), {field.name for field in dataclasses.fields(student)} - {*HOW_IT_RUNS}
    flags = tuple(f"--config.student.{name}={getattr(student, name)}" for name in sorted(sizes))
    if folder.exists():
        return flags
    with new_folder(folder) as partial:
        save_hf(partial, model, jax.jit(model.init)(jax.random.key(0)))
        tokenizer.save(partial / "tokenizer.json")
    return flags


def rehearse(folder: epath.Path, tokenizer: str) -> None:
    """Runs whatever a rehearsal lacks, and prints beside each stage what the real one takes."""
    made = folder / "rehearsal.json"
    before = read_object(made, str(made))["port"] if made.exists() else 0
    users, checkout = folder / "users", Checkout(folder / "checkout")
    users.mkdir(exist_ok=True)
    with served(f"--workdir={users}", f"--checkout={checkout.folder}", *USERS, *MODELS, f"--port={before}") as url:
        write_json(made, {"port": int(url.split(":")[2].split("/")[0])})  # answers are cached by address
        student = random_weights(folder / "Qwen3-small", _tokenizer(tokenizer, users / FILES["train"]))
        inputs = Inputs(
            source=str(checkout.folder),
            agent_data=tuple(f"{domain}={path}" for domain, path in checkout.agent_data().items()),
            weights=str(folder / "Qwen3-small"),
            gpus=0,
            curated=REHEARSED,
            sample=SMALL_SAMPLE,
            budget=50.0,
            address=url,
            human=tuple(str(folder / f"annotator_{number}.jsonl") for number in range(1, ANNOTATORS + 1)),
            annotators=(
                *("python", "-m", "prism_jax.experiments.miniature"),
                *(f"--users={users / ANSWERS}", f"--workdir={folder}"),
            ),
            training=(*SHORT, *student),
            shares=("--calibration_share=0.3",),
        )
        listed = stages(folder, inputs)
        costs = real_costs.Costs.of(folder)
        own = {"TFDS_DATA_DIR": str(folder / "tfds"), "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
        environment = {**os.environ, **KEYS, **own}
        run_stages(listed, environment=environment, beside=lambda stage: _beside(stage, costs))
    print("\n".join(("", "The real thing, all stages together:", *total(listed, costs), "")))
    print("\n".join(outcome(folder, inputs)))


def _beside(stage: Stage, costs: real_costs.Costs) -> Iterable[str]:
    """What a stage takes in earnest, in lines."""
    if isinstance(stage.takes, real_costs.Asks):
        yield f"in earnest: {real_costs.bill(stage.takes)}"
    elif isinstance(stage.takes, str):
        yield from costs.of_training(stage.takes)
    else:
        yield "in earnest: the same command, minutes at most"


def total(listed: Sequence[Stage], costs: real_costs.Costs) -> Iterable[str]:
    """The sums over all stages, in lines."""
    asked = (real_costs.bill(stage.takes) for stage in listed if isinstance(stage.takes, real_costs.Asks))
    yield f"answers: {sum(asked, real_costs.Bill())}"
    yield from costs.total(pathways_of(listed))


def _tokenizer(path: str, streams: epath.Path) -> Tokenizer:
    """The tokenizer of a file; without one, one that is trained on the streams, which a line says."""
    if path:
        return Tokenizer.load(path)
    print("--tokenizer: found none, training a small one on the streams; the real one has 151,669 tokens")
    return make_tokenizer(read_streams(streams), PromptConfig())


def real_tokenizer() -> str:
    """Qwen3's tokenizer beside the checkout, where it is; else nothing."""
    path = epath.Path(__file__).parents[2].parent / "shared" / "qwen3-tokenizer" / "tokenizer.json"
    return str(path) if path.exists() else ""


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("workdir", None, "Folder for everything that is made.", required=True)
    flags.DEFINE_bool("rehearse", False, "Rehearse: simulated users, a fake endpoint, a small random student.")
    flags.DEFINE_string("tokenizer", real_tokenizer(), "With --rehearse: tokenizer.json of Qwen3.")
    flags.DEFINE_string("source", None, "Checkout of ProactiveBench's repository.")
    flags.DEFINE_multi_string("agent_data", [], "Its training data in chat form, as FILE or DOMAIN=FILE; repeated.")
    flags.DEFINE_string("weights", None, "Folder of Qwen3-8B as published on Hugging Face.")
    flags.DEFINE_enum("gpus", "1", ["1", "8"], "Number of GPUs of 80 GB to train on.")
    flags.DEFINE_float("budget", None, "USD that all answers may cost together.", 0.0)
    flags.DEFINE_list("human", [], "Files of votes that annotators downloaded from people.html.")


def main() -> Iterable[Table]:
    """Runs what the folder lacks."""
    options, folder = flags.FLAGS, epath.Path(flags.FLAGS.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    with only_training(folder):
        if options.rehearse:
            rehearse(folder, options.tokenizer)
            return []
        for name in ("source", "agent_data", "weights", "budget"):
            if options[name].value in (None, []):
                raise ValueError(f"--{name}: found none, expected it without --rehearse")
        inputs = Inputs(
            source=options.source,
            agent_data=tuple(options.agent_data),
            weights=options.weights,
            gpus=int(options.gpus),
            curated=real_costs.CURATED,
            sample=SAMPLE,
            budget=options.budget,
            human=tuple(options.human),
        )
        run_stages(stages(folder, inputs))
        print("\n".join(outcome(folder, inputs)))
    return []
