"""The digests of a checkpoint's files (`prism_jax.runtime.digests`), which several processes compare together.

They are written before the checkpoint is complete. Orbax's own `_CHECKPOINT_METADATA` and `commit_success.txt` are not
among them: Orbax writes them last, and no value of the state comes from them.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from prism_jax.runtime.digests import changed_files

WRITTEN_LAST = ("_CHECKPOINT_METADATA", "commit_success.txt")
"""Files that a checkpoint's list leaves out."""


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
