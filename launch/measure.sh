#!/usr/bin/env bash
# Measures what a GPU of 80 GB must show, in about five minutes: decoding and the live engine of Qwen3-8B, its training
# step by what is recomputed, and scoring. What is worth most comes first; every part prints lines with card, date and
# versions as it goes, and a part that fails or exceeds its time leaves the others:
#   launch/measure.sh                                                         (PRESET=tiny on any machine: it runs)
#   launch/measure.sh --config=configs/qwen3_8b_a100x8.py --target=a100-80gb  (flags of benchmarks/step.py)
set -uo pipefail
source "$(dirname "$0")/common.sh"
PRESET=${PRESET:-qwen3_8b}
if [[ $PRESET == tiny ]]; then
    sizes=(--length=64 --new=8) scored=(--streams=40) step=(--config=configs/quickstart.py)
else
    scored=(--preset=qwen3_0_6b --dtype=bfloat16 --workers=1 --batch=64 --streams=1000)
    sizes=() step=(--config=configs/qwen3_8b_a100.py)
fi
[[ $* == *--config=* ]] && step=()

# Runs a command for at most some seconds; in the foreground, so that Ctrl-C ends it.
part() {
    run timeout --foreground --kill-after=5 "$@" || echo "part: found status $? after at most $1 s: ${*:2}" >&2
}

writers=(auto) # by XLA and, with cudnn, by the project's kernels
[[ $PRESET == tiny ]] || writers+=(cudnn)
for writer in "${writers[@]}"; do
    part 100 "$PYTHON" benchmarks/accelerator.py --preset="$PRESET" "${sizes[@]}" --attention="$writer" \
        --run decode ours 1 8 64
done
part 75 "$PYTHON" benchmarks/step.py "${step[@]}" "$@"
part 60 "$PYTHON" benchmarks/accelerator.py --preset="$PRESET" "${sizes[@]}" --run live ours 1 16 256
part 75 "$PYTHON" benchmarks/score.py "${scored[@]}"
for remat in full qkv; do
    part 60 "$PYTHON" benchmarks/step.py "${step[@]}" "$@" --config.student.remat="$remat"
done
