#!/usr/bin/env bash
#SBATCH --job-name=prism
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
# Trains on several SLURM nodes, one process per node. Submit it from the checkout; all nodes must have access to the
# checkout and to the workdir:
#   sbatch launch/slurm.sh --config=configs/qwen3_8b_a100x8.py --config.data.source=FILE --config.mesh.data=2 \
#       --config.training.batch=16 --workdir=DIR
# The mesh (data x fsdp x tensor) must have as many devices as the job. fsdp = 8 keeps FSDP's traffic inside a node.
set -euo pipefail
# SLURM runs a copy of this script from another folder.
source "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}/launch/common.sh"

# Without this JAX gives each process under SLURM a single device, as if there were one process per GPU.
export JAX_LOCAL_DEVICE_IDS=${JAX_LOCAL_DEVICE_IDS:-0,1,2,3,4,5,6,7}
# srun does not take over the number of processors of the job.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-32}
nodes=${SLURM_JOB_NUM_NODES:-2}
# A word that bash could evaluate inside $(( )) must not get there.
[[ $nodes =~ ^[0-9]+$ ]] || { echo "error: SLURM_JOB_NUM_NODES: found '$nodes', expected a whole number" >&2; exit 1; }
# Each process checks its own node and, joined to the others, that all devices of the job are visible.
run srun "$PYTHON" -m prism_jax train --check --distributed --devices="$((8 * 10#$nodes))" --device_memory=74GiB --disk=300GiB "$@"
# Shortly before the time is up, SLURM sends SIGTERM; training saves and exits with 75, and the job resumes in a new turn.
status=0
# All processes save together and exit with 75 one after the other. Were the rest killed at the first exit, srun would give
# their highest status, 137, so they have a minute; a process that fails alone ends the others then.
run srun --kill-on-bad-exit=0 --wait=60 "$PYTHON" -m prism_jax train --distributed "$@" || status=$?
if [[ $status == 75 && -n ${SLURM_JOB_ID:-} ]]; then exec scontrol requeue "$SLURM_JOB_ID"; fi
[[ $status == 0 ]] || exit "$status"
# Calibration and evaluation run in one process. absl takes --flag=value and --flag value, with one hyphen or two, and
# the last one counts.
workdir=
texts=()
previous=
for word in "$@"; do
    case $previous in --workdir | -workdir) workdir=$word ;; esac
    case $word in --workdir=* | -workdir=*) workdir=${word#*=} ;; esac
    [[ ! $word =~ ^--?(no)?texts(=.*)?$ ]] || texts+=("$word")
    previous=$word
done
[[ -z $workdir ]] || run "$PYTHON" -m prism_jax evaluate --workdir="$workdir" "${texts[@]}"
