#!/usr/bin/env bash
# Trains on one GPU of 80 GB:
#   launch/a100.sh --config=configs/qwen3_8b_a100.py --config.data.source=FILE --workdir=DIR [--config.x.y=value ...]
set -euo pipefail
source "$(dirname "$0")/common.sh"

run "$PYTHON" -m prism_jax train --check --devices=1 --device_memory=74GiB --disk=150GiB "$@"
run "$PYTHON" -m prism_jax train "$@"
