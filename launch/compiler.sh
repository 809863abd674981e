#!/usr/bin/env bash
# Installs XLA's compiler for NVIDIA GPUs (213 MiB for CUDA 12) on a machine without one, for `--plan --target=a100-80gb`:
#   launch/compiler.sh [DIR]
# DIR is the folder aot of the environment (.venv/aot) unless the variable PRISM_AOT names another one. Nothing outside it
# changes. CUDA=13 takes that of CUDA 13; otherwise it is that of JAX's plugin in this environment, or of CUDA 12.
set -euo pipefail
DIR=${1:-${PRISM_AOT:-}}
[[ -z $DIR ]] || DIR=$(realpath -m "$DIR")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}

ask() { "$PYTHON" -c "import importlib.metadata as m, importlib.util as u, sys; print($1)"; }
CUDA=${CUDA:-$(ask '13 if u.find_spec("jax_cuda13_plugin") else 12')}
case $CUDA in
12) tools=(nvidia-cuda-nvcc-cu12==12.9.86) ;;
13) tools=(nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37) ;;
*) echo "error: CUDA: found $CUDA, expected 12 or 13" >&2 && exit 1 ;;
esac
version=$(ask 'm.version("jax")')
"$PYTHON" -m pip install --quiet --no-deps --upgrade --target "${DIR:-$(ask sys.prefix)/aot}" \
    "jax-cuda$CUDA-pjrt==$version" "jax-cuda$CUDA-plugin==$version" "${tools[@]}"
