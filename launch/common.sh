# What the launch scripts share; sourced by them. DRY_RUN=1 prints what would run, and runs nothing.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}

# Overlaps communication with computation: XLA orders kernels so that gathers of the next layer run under this one.
XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_latency_hiding_scheduler=true"
# One gather for many small tensors: fewer, larger messages (128 MiB each). Without several devices they do nothing.
XLA_FLAGS+=" --xla_gpu_all_gather_combine_threshold_bytes=134217728"
XLA_FLAGS+=" --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728"
export XLA_FLAGS

# JAX takes this share of the card at once (0.75 by default); what remains is for CUDA, cuDNN and NCCL themselves.
export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.95}

run() {
    if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@"; echo; else "$@"; fi
}
