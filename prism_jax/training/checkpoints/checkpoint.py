"""The format of a checkpoint (Orbax) and reading one: state, position in the data and config, saved atomically.

No random state is saved: every draw depends only on the seed in the config and on the step or the position in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from jax.experimental import multihost_utils

from prism_jax.runtime.dataclass_config import from_config_dict
from prism_jax.runtime.digests import NAME, changed_files, read_digests
from prism_jax.runtime.files import JsonError, parse_json, read_bounded
from prism_jax.training.optimization.step import TrainState
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import expect_config

ITEMS = ("state", "data", "config")
SCORE = "validation_nll"
"""The metric that selects the best checkpoint. It is saved with a checkpoint if validation streams were scored."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or written; the message names it and says what is wrong."""


class Restored(NamedTuple):
    """A checkpoint that was read."""

    step: int  # number of completed updates
    state: TrainState  # training state, with the requested shardings
    data: dict[str, Any]  # position in the data
    damaged: tuple[int, ...] = ()  # steps of the checkpoints that would have been read instead, were they not damaged


def steps(folder: epath.Path) -> list[int]:
    """Steps of the complete checkpoints in a folder, newest first; writes nothing."""
    if not folder.exists():
        return []
    complete = ocp.path.step.standard_name_format().find_all(folder.resolve())
    return sorted((metadata.step for metadata in complete), reverse=True)


def score(path: epath.Path) -> float | None:
    """The validation loss of a checkpoint, None if none was measured; raises CheckpointError for damaged metrics."""
    file = path / "metrics" / "metrics"
    check_digests(path, only="metrics/metrics")
    if not file.exists():
        return None
    try:
        value = parse_json(read_bounded(file), "metrics/metrics")
    except JsonError as error:
        raise damaged(path, str(error)) from error
    loss = value.get(SCORE) if isinstance(value, dict) else value
    if not isinstance(loss, float | None):
        raise damaged(path, f"{SCORE} = {loss!r} in metrics/")
    return loss


def parameters_alone(abstract: TrainState) -> TrainState:
    """The abstract state that restores parameters only: Orbax leaves each leaf of the optimizer's state as `...`."""
    return abstract._replace(optimizer=jax.tree.map(lambda _: ocp.PLACEHOLDER, abstract.optimizer))


def read(path: epath.Path, abstract: TrainState, config: RunConfig) -> Restored:
    """Reads one checkpoint, which must have been saved with this config, into the shardings of the abstract state.

    CheckpointError if it is damaged; ConfigError, naming the first key that differs, if it has another config.
    """
    missing = [item for item in ITEMS if not (path / item).is_dir() or not any((path / item).iterdir())]
    if missing:
        raise damaged(path, f"no {missing[0]}/ in it")
    score(path)
    if not check_digests(path):
        logging.warning("%s: found no %s, as older versions wrote it: changed bytes are not detected", path, NAME)
    saved = _restore(path, config=ocp.args.JsonRestore()).config
    if not isinstance(saved, dict):
        raise damaged(path, f"{saved!r} in config/, no config")
    place = f"{path}/config"
    saved_config = from_config_dict(RunConfig, saved, f"{place}: config")
    expect_config(saved_config, config, place)
    places = ocp.checkpoint_utils.construct_restore_args(abstract)
    state = ocp.args.PyTreeRestore(abstract, restore_args=places)
    restored = _restore(path, state=state, data=ocp.args.JsonRestore())
    if not isinstance(restored.data, dict):
        raise damaged(path, f"{restored.data!r} in data/, no position in the data")
    return Restored(int(path.name), restored.state, restored.data)


def check_digests(path: epath.Path, only: str | None = None) -> bool:
    """Compares the files of a checkpoint with their digests, all of them or only one.

    Returns whether the checkpoint has digests; those of older versions have none.

    Raises:
      CheckpointError: naming the first file that is missing or differs.
    """
    try:
        digests = read_digests(path)
    except JsonError as error:
        raise damaged(path, str(error)) from error
    if digests is None:
        return False
    if only is not None:
        digests = {name: digest for name, digest in digests.items() if name == only}
    name = first_difference(path, digests)
    if name is not None:
        raise damaged(path, f"{name} that differs from its digest in {NAME}")
    return True


def _restore(path: epath.Path, **items: Any) -> Any:
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
            return checkpointer.restore(path.resolve(), args=ocp.args.Composite(**items))
    except (MemoryError, PermissionError, jax.errors.JaxRuntimeError):
        raise  # not caused by a damaged checkpoint
    except Exception as error:  # Orbax and the libraries below it raise many types for a damaged file
        raise damaged(path, f"what cannot be restored ({reason(error)})") from error


def damaged(path: epath.Path, content: str) -> CheckpointError:
    """The error for a damaged checkpoint; `content` describes what was found in it."""
    return CheckpointError(f"{path}: found {content}, expected a whole checkpoint")


def reason(error: BaseException) -> str:
    """An error of Orbax or a library below it, shortened to one line."""
    text = " ".join(str(error).split(" [tensorstore_spec")[0].split())
    shown = text if len(text) <= 300 else f"{text[:150]} ... {text[-150:]}"  # the ends say what failed and why
    return f"{type(error).__name__}: {shown}"


WRITTEN_LAST = ("_CHECKPOINT_METADATA", "commit_success.txt")
"""Files without a digest: Orbax writes them after the digests, and no value of the state comes from them."""


def first_difference(folder: epath.Path, digests: Mapping[str, str]) -> str | None:
    """Names the first file that is missing or does not match its digest; None if all match.

    With several processes each of them reads a share of the files, and all return the same. All must call this.
    """
    names = sorted(digests)
    share = names[jax.process_index() :: jax.process_count()]
    first = np.array(min(map(names.index, changed_files(folder, digests, share)), default=len(names)))
    if jax.process_count() > 1:
        first = multihost_utils.process_allgather(first).min()
    return None if first == len(names) else names[int(first)]
