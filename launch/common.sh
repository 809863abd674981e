# Common parts of the launch scripts, which source this file. DRY_RUN=1 prints the commands without running them.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}

# Overlaps communication with computation: XLA schedules the gathers of the next layer while this one computes.
XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_latency_hiding_scheduler=true"
# Combines gathers of small tensors into fewer messages of up to 128 MiB. No effect on a single device.
XLA_FLAGS+=" --xla_gpu_all_gather_combine_threshold_bytes=134217728"
XLA_FLAGS+=" --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728"
# The config decides what is recomputed (student.remat). XLA's own rematerialisation would recompute matrix products as
# well, because it counts arrays that are kept in the host's memory as the device's.
XLA_FLAGS+=" --xla_disable_hlo_passes=rematerialization"
export XLA_FLAGS

# JAX reserves this share of GPU memory at start (0.75 by default); CUDA, cuDNN and NCCL need the rest.
export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.95}

run() {
    if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@"; echo; else "$@"; fi
}
