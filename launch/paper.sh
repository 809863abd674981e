#!/usr/bin/env bash
# The paper from unlabelled streams to its tables, or a rehearsal of it that needs no GPU and no key (docs/paper.md):
#   launch/paper.sh --rehearse --workdir=runs/rehearsal
#   launch/paper.sh --train=FILE --calibration=FILE --test=FILE --weights=DIR --budget=USD --gpus=8 --workdir=runs/paper
# Killed at any moment, the same command goes on where it was. A fresh checkout is set up first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -n ${PYTHON:-} ]] || make --silent .venv/installed-remote
exec "${PYTHON:-.venv/bin/python}" -m prism_jax experiments reproduce "$@"
