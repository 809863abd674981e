"""What the experiments that train share: the recipes of their students, and the store that keeps the trainings."""

from __future__ import annotations

import dataclasses

from prism_jax.runs.store import Store, of_seed
from prism_jax.scores import Scores
from prism_jax.streams import Stream
from prism_jax.streams.simulator_config import SimulatorConfig
from prism_jax.streams.sources import DataConfig, load_splits
from prism_jax.student.qwen3 import Params
from prism_jax.training import students
from prism_jax.training.loss_config import LossConfig
from prism_jax.training.run import Run
from prism_jax.training.run_config import RunConfig, TrainingConfig
from prism_jax.training.students import THINKING

STUDENT = "student"
"""Name in the store of the student on which most tables are computed; the study of thinking trains the same."""

PATHWAYS = RunConfig(
    data=DataConfig(train_streams=8000, calibration_streams=150, test_streams=500),
    simulator=SimulatorConfig(min_events=4, max_events=4, teacher=True, teacher_blur=0.7, teacher_bias=0.3),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.2, accept=1.2),
    training=TrainingConfig(steps=400, batch=32, learning_rate=4e-3, checkpoint_every=100),
)
"""A tiny student on streams of three decisions, with a teacher's probabilities."""

TRANSFER = RunConfig(
    data=DataConfig(train_streams=8000, calibration_streams=600, test_streams=1500),
    simulator=SimulatorConfig(min_events=4, max_events=4, responses=0),
    prompt=students.PROMPT,
    student=students.STUDENT,
    loss=LossConfig(response=0.0, accept=1.2),
    training=TrainingConfig(steps=400, batch=32, learning_rate=4e-3, checkpoint_every=100),
)
"""The tiny student of the pathways, on short streams of the population `items`, without a teacher."""


@dataclasses.dataclass(frozen=True)
class Recipes:
    """The configs of all trainings; the seed of each is replaced."""

    student: RunConfig = THINKING  # the student with a fast and a slow pass, on which most tables are computed
    pathways: RunConfig = PATHWAYS  # the students of ablation C, apart from their pathway
    # the students of domain transfer, apart from the files of their streams; `data` says how many to draw
    transfer: RunConfig = TRANSFER
    timed_streams: int = 20  # number of test streams on which the live passes of the student are timed


@dataclasses.dataclass(frozen=True)
class Trainings:
    """The trainings of one seed."""

    store: Store  # where they are kept
    seed: int = 0  # seed of the streams, the initial parameters and the order of the data
    recipes: Recipes = dataclasses.field(default_factory=Recipes)

    @property
    def config(self) -> RunConfig:
        """The config of the student."""
        return of_seed(self.recipes.student, self.seed)

    @property
    def named(self) -> tuple[str, RunConfig]:
        """The name and the config of the student in the store."""
        return STUDENT, self.config

    def scores(self) -> Scores:
        """The student's raw scores, both passes."""
        return self.store.scores(*self.named)

    def given_accept(self) -> Scores:
        """The raw scores of the same student whose p_need is given acceptance."""
        name, config = self.named
        loss = dataclasses.replace(config.loss, need_target="given_accept")
        return self.store.scores(f"{name}-given_accept", dataclasses.replace(config, loss=loss))

    def untrained(self) -> Scores:
        """The raw scores of the same student before training, its fast pass alone."""
        return self.store.scores(*self.named, "untrained")

    def student(self) -> tuple[Run, Params]:
        """The trained student itself."""
        return self.store.trained(*self.named)

    def test_streams(self) -> tuple[Stream, ...]:
        """The student's test streams with their labels."""
        alone = dataclasses.replace(self.config.data, train_streams=1, calibration_streams=1)
        return load_splits(alone, self.config.simulator).test

    @property
    def workdir(self) -> str:
        """The name of the student's folder in the store."""
        return self.store.place(*self.named).name
