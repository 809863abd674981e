"""One checkpoint: state, position in the data and config, together and whole or not at all (Orbax); reading it back.

The state's step and the position say all of randomness: each draw comes from the config's seed and one of the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp
from etils import epath

from prism_jax.runtime.config import from_config_dict
from prism_jax.runtime.files import JsonError, parse_json
from prism_jax.training.config import RunConfig
from prism_jax.training.old_names import upgrade
from prism_jax.training.optimization.step import TrainState
from prism_jax.training.workdir import expect_config

ITEMS = ("state", "data", "config")
SCORE = "validation_nll"
"""The metric, saved with a checkpoint where held-out streams were scored, that says which one is best."""
OLD_SCORE = "held_out_nll"
"""What older versions called it."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read or written; the message names it and says what is wrong."""


class Restored(NamedTuple):
    """A checkpoint, read.

    Attributes:
      step: Updates done.
      state: Placed as asked for.
      data: Position in the data.
    """

    step: int
    state: TrainState
    data: dict[str, Any]


def steps(folder: epath.Path) -> list[int]:
    """Steps of the checkpoints that were written to the end, newest first; writes nothing."""
    if not folder.exists():
        return []
    found = ocp.path.step.standard_name_format().find_all(folder.resolve())
    return sorted((metadata.step for metadata in found), reverse=True)


def score(path: epath.Path) -> float | None:
    """The held-out loss of a checkpoint; None where none was measured.

    Raises:
      CheckpointError: for a file that says something else.
    """
    file = path / "metrics" / "metrics"
    if not file.exists():
        return None
    try:
        value = parse_json(file.read_bytes(), "metrics/metrics")
    except JsonError as error:
        raise damaged(path, str(error)) from error
    found = value.get(SCORE, value.get(OLD_SCORE)) if isinstance(value, dict) else value
    if not isinstance(found, float | None):
        raise damaged(path, f"{SCORE} = {found!r} in metrics/")
    return found


def parameters_alone(abstract: TrainState) -> TrainState:
    """What to ask for where the optimizer's state is not wanted: it stays on the disk, `...` stands in its place."""
    return abstract._replace(optimizer=jax.tree.map(lambda _: ocp.PLACEHOLDER, abstract.optimizer))


def read(path: epath.Path, abstract: TrainState, config: RunConfig) -> Restored:
    """Reads one checkpoint, its state placed as `abstract` says.

    Raises:
      CheckpointError: for a damaged checkpoint.
      ConfigError: naming the first key that differs, for a checkpoint of another config.
    """
    missing = [item for item in ITEMS if not _holds_something(path / item)]
    if missing:
        raise damaged(path, f"no {missing[0]}/ in it")
    score(path)
    saved = _restore(path, config=ocp.args.JsonRestore()).config
    if not isinstance(saved, dict):
        raise damaged(path, f"{saved!r} in config/, no config")
    place = f"{path}/config"
    found = from_config_dict(RunConfig, upgrade(saved, f"{place}: config"), f"{place}: config")
    expect_config(found, config, place)
    places = ocp.checkpoint_utils.construct_restore_args(abstract)
    state = ocp.args.PyTreeRestore(abstract, restore_args=places)
    restored = _restore(path, state=state, data=ocp.args.JsonRestore())
    if not isinstance(restored.data, dict):
        raise damaged(path, f"{restored.data!r} in data/, no position in the data")
    return Restored(int(path.name), restored.state, restored.data)


def _restore(path: epath.Path, **items: Any) -> Any:
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            return checkpointer.restore(path.resolve(), args=ocp.args.Composite(**items))
    except (MemoryError, PermissionError, jax.errors.JaxRuntimeError):
        raise  # nothing that is wrong with the checkpoint
    except Exception as error:  # whatever Orbax and the libraries below it make of a damaged file
        raise damaged(path, f"what cannot be restored ({reason(error)})") from error


def damaged(path: epath.Path, found: str) -> CheckpointError:
    """The error of a checkpoint that holds `found`."""
    return CheckpointError(f"{path}: found {found}, expected a whole checkpoint")


def reason(error: BaseException) -> str:
    """An error of Orbax or a library below it, in one short line."""
    said = " ".join(str(error).split(" [tensorstore_spec")[0].split())
    shown = said if len(said) <= 300 else f"{said[:150]} ... {said[-150:]}"  # what failed, and why
    return f"{type(error).__name__}: {shown}"


def _holds_something(folder: epath.Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
