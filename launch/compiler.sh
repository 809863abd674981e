#!/usr/bin/env bash
# Installs XLA's compiler for NVIDIA GPUs (213 MiB) on a machine without one, for `--plan --target=a100-80gb`:
#   launch/compiler.sh [DIR]
# DIR is .venv/aot unless the variable PRISM_AOT names another folder. Nothing outside it changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}
DIR=${1:-${PRISM_AOT:-.venv/aot}}

version=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("jax"))')
"$PYTHON" -m pip install --quiet --no-deps --upgrade --target "$DIR" \
    "jax-cuda12-pjrt==$version" "jax-cuda12-plugin==$version" nvidia-cuda-nvcc-cu12==12.9.86
