#!/usr/bin/env bash
# Trains on one node in one process; the variable GPUS is its number of GPUs (default 8):
#   launch/node.sh --config=configs/qwen3_8b_a100x8.py --config.data.source=FILE --workdir=DIR ...
set -euo pipefail
source "$(dirname "$0")/common.sh"

run "$PYTHON" -m prism_jax train --check --devices="${GPUS:-8}" --device_memory=74GiB --disk=300GiB "$@"
run "$PYTHON" -m prism_jax train "$@"
