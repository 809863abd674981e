"""Records what produced a result: command, package versions, machine and git commit. Imports none of the packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from prism_jax.runtime.shown_text import without_credentials

PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "transformers", "prism_jax")


def provenance() -> dict[str, Any]:
    """The command without credentials, package versions, platform and git commit of this process."""
    return {
        "command": without_credentials(shlex.join([Path(sys.executable).name, *_arguments()])),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _arguments() -> list[str]:
    """The command line; a module that was run with -m is named in this form, and a command of ours by its name."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if not (spec and spec.name):
        return list(sys.argv)
    name = spec.name.removesuffix(".__main__")
    command = re.fullmatch(r"(prism_jax)\.(?:commands\.)?(\w+)", name)
    return ["-m", *(command.groups() if command else [name]), *sys.argv[1:]]


def _commit() -> str | None:
    """The commit of the checkout that contains the package, marked if it has changes; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + (" with uncommitted changes" if status.stdout.strip() else "")


def as_facts(made: dict[str, Any]) -> dict[str, str]:
    """The result of `provenance` as lines of a report."""
    return {
        "command": made["command"],
        "versions": ", ".join(f"{name} {version}" for name, version in made["packages"].items()),
        "commit": made["commit"] or "none",
    }
