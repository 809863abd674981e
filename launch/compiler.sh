#!/usr/bin/env bash
# Installs XLA's compiler for NVIDIA GPUs (213 MiB) on a machine without one, for `--plan --target=a100-80gb`:
#   launch/compiler.sh [DIR]
# DIR is the folder aot of the environment (.venv/aot) unless the variable PRISM_AOT names another one. Nothing outside it
# changes.
set -euo pipefail
DIR=${1:-${PRISM_AOT:-}}
[[ -z $DIR ]] || DIR=$(realpath -m "$DIR")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}

version=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("jax"))')
"$PYTHON" -m pip install --quiet --no-deps --upgrade --target "${DIR:-$("$PYTHON" -c 'import sys; print(sys.prefix)')/aot}" \
    "jax-cuda12-pjrt==$version" "jax-cuda12-plugin==$version" nvidia-cuda-nvcc-cu12==12.9.86
