"""A small substitute for ProactiveBench, configs of tiny students on it, and the files of a finished run."""

import dataclasses

import numpy as np

from prism_jax.scores import Scores, write_scores
from prism_jax.streams import Candidate, Event, Step, Stream
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.sources import DataConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.template import PromptConfig
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run import open_run, resolve
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.workdir import Workdir


def stream(number):
    """Six steps of two offers with three votes each; labels follow from the votes as in ProactiveBench."""
    rng = np.random.default_rng(number)
    steps = []
    for event in range(6):
        ballots = rng.random((2, 3)) < 0.5
        ballots[0] |= event % 2 == 0  # so that every stream has steps of both kinds
        offers = tuple(
            Candidate(
                text=f"offer {rng.integers(9)}",
                y_accept=float(ballot.sum() >= 2),
                votes=tuple(ballot.tolist()),
                logged=True,
                propensity=1.0,
            )
            for ballot in ballots
        )
        silence = tuple((~ballots.any(axis=0)).tolist())
        steps.append(Step(event=event, candidates=offers, y_need=float(ballots.all(axis=1).any()), votes=silence))
    events = tuple(Event(time=30.0 * i, text=f"does thing {rng.integers(9)}") for i in range(6))
    return Stream(id=f"s{number}", events=events, steps=tuple(steps), domain="coding")


def configs(folder):
    """Configs of a student with frozen lower blocks and of a plain one, on two folds of twelve streams in `folder`."""
    source = folder / "streams.jsonl"
    if not source.exists():
        write_streams(source, [stream(number) for number in range(12)])
    tiny = RunConfig(
        data=DataConfig(name="jsonl", source=str(source), folds=2, calibration=0.34),
        prompt=PromptConfig(system="Watch.", vocab_size=400),
        student=StudentConfig(hidden_dim=16, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8, mlp_dim=32),
        loss=LossConfig(response=0.0),
        training=TrainingConfig(steps=4, batch=1, learning_rate=1e-2, checkpoint_every=4),
    )
    training = dataclasses.replace(tiny.training, frozen=("embedding", "layers/0/.*"), reuse_frozen=True)
    return dataclasses.replace(tiny, training=dataclasses.replace(training, soft_labels=True)), tiny


def stand_in(config, folder):
    """Writes the files that `train_and_evaluate` leaves behind, with random signals."""
    run = open_run(resolve(config))
    Workdir(folder).claim(run.config)
    run.template.tokenizer.save(folder / "tokenizer.json")
    (folder / "timings.jsonl").write_text('{"step": 1, "seconds": 2.0}\n' * 8)
    write_scores(folder / "scores.parquet", random_scores(run.splits, config.data.fold))


def random_scores(splits, fold):
    """Random signals for every offer of the calibration and the test streams, with their labels."""
    rng = np.random.default_rng(fold)
    rows = [
        {
            "stream": one.id,
            "step": number,
            "candidate": index,
            "split": split,
            "fold": fold,
            "p_need_fast": need,
            "p_accept_fast": rng.random(),
            "y_need": step.y_need,
            "y_accept": offer.y_accept,
            "votes": list(offer.votes),
        }
        for split in ("calibration", "test")
        for one in getattr(splits, split)
        for number, step in enumerate(one.steps)
        for need in [rng.random()]
        for index, offer in enumerate(step.candidates)
    ]
    return Scores.from_rows(rows)
