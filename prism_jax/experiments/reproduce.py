"""The paper from unlabelled streams to its tables, by our commands and configs; or a rehearsal of it.

    launch/paper.sh --rehearse --workdir=runs/rehearsal
    launch/paper.sh --train=FILE --calibration=FILE --test=FILE --weights=DIR --budget=USD --workdir=runs/paper

The teacher labels every stream, three judges judge it, curation keeps the best decisions, every pathway of ablation C
trains, is calibrated and evaluated, and the tables are made. What is complete is never repeated: a call that was killed
resumes at the stage, and in it at the answer or the checkpoint. The files hold unlabelled streams
(docs/distillation.md), the folder Qwen3-8B as published on Hugging Face. `--gpus=8` trains on eight GPUs, not one.

A rehearsal takes the same stages and configs on simulated users, a fake endpoint that answers for the models of the
configs, and a small random Qwen3 with the real tokenizer (`--tokenizer`), and prints beside each stage what the real
one takes: `prism_jax.experiments.real_costs`. docs/paper.md explains both.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import jax
from absl import flags
from etils import epath

from prism_jax.experiments import real_costs
from prism_jax.experiments.simulated_users import FILES, served
from prism_jax.experiments.stages import Stage, main_of, run_stages
from prism_jax.prompting.template import PromptConfig, make_tokenizer
from prism_jax.prompting.tokenizer import Tokenizer
from prism_jax.report.table import Table
from prism_jax.runs.curation import summary_path
from prism_jax.runtime import command
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.files import new_folder, read_object, write_json
from prism_jax.streams.jsonl import read_streams
from prism_jax.student import Qwen3, StudentConfig
from prism_jax.student.weights import save_hf
from prism_jax.training.lock import only_training
from prism_jax.training.pathways.stages import HOW_IT_RUNS
from prism_jax.training.pathways.table import PATHWAYS, SECOND_STAGES

MAIN = "rdc_sft"
"""The pathway of the paper's main table, from which second stages start."""
ORDER = (MAIN, *(name for name in PATHWAYS if name not in (MAIN, "joint")))

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
    *("--train=24", "--calibration=12", "--held_out=12"),
)
REHEARSED = 24
"""Number of decisions that curation keeps in a rehearsal."""
MODELS = ("--teacher=deepseek-reasoner", "--judges=deepseek/deepseek-r1,openai/gpt-4o,anthropic/claude-3.5-sonnet")
"""The models of configs/teacher.py and configs/judges_paper.py."""
KEYS = {"DEEPSEEK_API_KEY": "none-needed", "OPENROUTER_API_KEY": "none-needed"}
SHORT = ("--config.packing.context=512", "--config.writing.field_tokens=4", "--config.writing.response_tokens=4")


class Inputs(NamedTuple):
    """What the stages start from."""

    streams: Mapping[str, str]  # file of unlabelled streams of each split
    weights: str  # folder of the weights
    gpus: int  # number of GPUs; 0 in a rehearsal, which needs none
    curated: int  # number of decisions that curation keeps
    teacher: tuple[str, ...]  # flags of the teacher's config
    judges: str  # value of --config for the judges
    budget: float  # USD that all answers together may cost
    training: tuple[str, ...] = ()  # flags that shrink a training


def stages(folder: epath.Path, inputs: Inputs) -> list[Stage]:
    """All stages in order."""
    return [*_labels(folder, inputs), *_trainings(folder, inputs), *_tables(folder)]


def _labels(folder: epath.Path, inputs: Inputs) -> Iterator[Stage]:
    """Teacher, judges and curation."""
    remote = (f"--config.remote.cache={folder / 'answers.sqlite'}", f"--config.remote.budget={inputs.budget}")
    for split, source in inputs.streams.items():
        out = folder / f"taught_{split}.jsonl"
        words = main_of(
            "label", "--config=configs/teacher.py", *inputs.teacher, *remote, f"--streams={source}", f"--out={out}"
        )
        yield Stage(f"the teacher labels the {split} streams", words, out.exists, asks=True)
    for split in inputs.streams:
        source, out = folder / f"taught_{split}.jsonl", folder / f"judged_{split}.jsonl"
        files = (f"--streams={source}", f"--votes={folder / f'votes_{split}.jsonl'}", f"--out={out}")
        words = main_of("judge", f"--config={inputs.judges}", *remote, *files)
        yield Stage(f"three judges judge the {split} streams", words, out.exists, asks=True)
    source, out = folder / "judged_train.jsonl", folder / "curated.jsonl"
    words = main_of("curate", f"--streams={source}", f"--out={out}", f"--count={inputs.curated}")
    yield Stage("the decisions of highest R_DC are kept", words, summary_path(out).exists)


def _trainings(folder: epath.Path, inputs: Inputs) -> Iterator[Stage]:
    """Every pathway: trained, calibrated and evaluated."""
    config = "configs/qwen3_8b_a100x8.py" if inputs.gpus == 8 else "configs/qwen3_8b_a100.py"
    script = {0: main_of("train"), 1: ("launch/a100.sh",), 8: ("launch/node.sh",)}[inputs.gpus]
    for name in ORDER:
        train = folder / ("curated.jsonl" if PATHWAYS[name].filtered else "judged_train.jsonl")
        start = folder / MAIN if name in SECOND_STAGES else inputs.weights
        files = {
            "train": train,
            "calibration": folder / "judged_calibration.jsonl",
            "test": folder / "judged_test.jsonl",
        }
        words = (
            *script,
            f"--config={config}",
            f"--config.pathway.name={name}",
            "--config.pathway.filter=off",
            real_costs.SLOW,
            "--config.data.source=",
            *(f"--config.data.{split}_source={path}" for split, path in files.items()),
            f"--config.training.start={start}",
            *inputs.training,
            f"--workdir={folder / name}",
        )
        yield Stage(f"{name}: trained, calibrated, evaluated", words, (folder / name / "report.html").exists)


def _tables(folder: epath.Path) -> Iterator[Stage]:
    """The tables of the main pathway's scores, all pathways on one page, and the export."""
    tables, page, model = folder / "tables", folder / "pathways.html", folder / "model"
    words = main_of("experiments", "all", f"--scores={folder / MAIN / 'scores.parquet'}", f"--workdir={tables}")
    yield Stage("the paper's tables", words, (tables / "tables.md").exists)
    runs = ",".join(str(folder / name) for name in ORDER)
    yield Stage("all pathways on one page", main_of("report", f"--runs={runs}", f"--out={page}"), page.exists)
    words = main_of("export", f"--workdir={folder / MAIN}", f"--output={model}")
    yield Stage("the student is exported", words, model.exists)


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
    users = folder / "users"
    users.mkdir(parents=True, exist_ok=True)
    with served(f"--folder={users}", *USERS, *MODELS, f"--port={before}") as url:
        write_json(made, {"port": int(url.split(":")[2].split("/")[0])})  # answers are cached by address
        streams = {split: str(users / name) for split, name in FILES.items()}
        student = random_weights(folder / "Qwen3-small", _tokenizer(tokenizer, streams["train"]))
        inputs = Inputs(
            streams,
            weights=str(folder / "Qwen3-small"),
            gpus=0,
            curated=REHEARSED,
            teacher=(f"--config.endpoint.base_url={url}", *real_costs.TEACHER_PRICES),
            judges=f"configs/judges_paper.py:{url}",
            budget=5.0,
            training=(*SHORT, *student),
        )
        listed = stages(folder, inputs)
        costs = real_costs.Costs.of(folder)
        environment = {**os.environ, **KEYS, "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
        for asks in (True, False):
            run_stages(listed, asks=asks, environment=environment, beside=costs.of_stage)
    print("\n".join(("", "The real thing, all stages together:", *costs.total(ORDER))))


def _tokenizer(path: str, streams: str) -> Tokenizer:
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
    refuse_empty("workdir")
    flags.DEFINE_bool("rehearse", False, "Rehearse: simulated users, a fake endpoint, a small random student.")
    flags.DEFINE_string("tokenizer", real_tokenizer(), "With --rehearse: tokenizer.json of Qwen3.")
    for split in FILES:
        flags.DEFINE_string(split, None, f"JSONL file of the unlabelled {split} streams.")
    flags.DEFINE_string("weights", None, "Folder of Qwen3-8B as published on Hugging Face.")
    flags.DEFINE_enum("gpus", "1", ["1", "8"], "Number of GPUs of 80 GB to train on.")
    flags.DEFINE_float("budget", None, "USD that the teacher's and the judges' answers may cost together.", 0.0)


def main() -> Iterable[Table]:
    """Runs what the folder lacks."""
    options, folder = flags.FLAGS, epath.Path(flags.FLAGS.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    with only_training(folder):
        if options.rehearse:
            rehearse(folder, options.tokenizer)
            return []
        for name in (*FILES, "weights", "budget"):
            if options[name].value is None:
                raise ValueError(f"--{name}: found none, expected it without --rehearse")
        inputs = Inputs(
            {split: str(options[split].value) for split in FILES},
            weights=options.weights,
            gpus=int(options.gpus),
            curated=real_costs.CURATED,
            teacher=(),
            judges="configs/judges_paper.py",
            budget=options.budget,
        )
        listed = stages(folder, inputs)
        for asks in (True, False):
            run_stages(listed, asks=asks)
    return []


if __name__ == "__main__":
    command.moved("experiments reproduce")
