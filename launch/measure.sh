#!/usr/bin/env bash
# Runs a config's training step on this machine's GPUs, if its plan fits, beside what the compiler says of it:
#   launch/measure.sh --config=configs/qwen3_8b_a100.py --target=a100-80gb      (GPUS=8 for eight of them)
set -euo pipefail
source "$(dirname "$0")/common.sh"

run "$PYTHON" -m prism_jax.train --plan --devices="${GPUS:-1}" "$@"
run "$PYTHON" benchmarks/step.py "$@"
