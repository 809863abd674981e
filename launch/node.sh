#!/usr/bin/env bash
# Trains on one node of GPUS (8) GPUs, in one process: launch/node.sh --config=configs/qwen3_8b_a100x8.py --workdir=DIR ...
set -euo pipefail
source "$(dirname "$0")/common.sh"

run "$PYTHON" -m prism_jax.preflight --devices="${GPUS:-8}" --device_memory=74GiB --disk=300GiB "$@"
run "$PYTHON" -m prism_jax.train "$@"
