#!/usr/bin/env bash
# Serves many streams on the machines of a Ray cluster, or on this one alone (docs/service.md, extra `cluster`):
#   launch/ray.sh MODEL [--c_fa=1 --c_fn=2 --state=DIR --owners=4 --port=8000 --token_file=FILE ...]
# Replicas of the exported MODEL answer the owners of the streams, which answer the world; the flags are those of
# `python -m prism_jax serve --state`. Variables: REPLICAS=LEAST:MOST (1:4), GPUS of each replica (0), and its PORT (8100).
# On more machines, `ray start --head` on one and `ray start --address=HEAD:6379` on the others come first; all of them
# must have this checkout's environment, and see MODEL and the state under the same paths.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}
(($# >= 1)) && [[ $1 != -* ]] || { echo "error: MODEL: found none, expected the folder of an exported model" >&2; exit 1; }
model=$1 port=${PORT:-8100}
shift

run() {
    if [[ -n ${DRY_RUN:-} ]]; then printf '%q ' "$@"; echo; else "$@"; fi
}

"$PYTHON" -c 'import ray' 2>/dev/null || { echo "error: found no library ray, expected it: pip install 'prism_jax[cluster]'" >&2; exit 1; }
# Joins the cluster of this machine, or starts one that ends with this script.
if ! "$PYTHON" -m ray.scripts.scripts status >/dev/null 2>&1; then
    run "$PYTHON" -m ray.scripts.scripts start --head --include-dashboard=false
    started=1
fi
# Both servers end with this script: a shell that a signal ends would leave the one that it waits for.
end() {
    kill $(jobs -p) 2>/dev/null && wait || true
    [[ -z ${started:-} || -n ${DRY_RUN:-} ]] || "$PYTHON" -m ray.scripts.scripts stop >/dev/null
}
trap end EXIT
replicas=("$PYTHON" -m prism_jax serve --model="$model" --name=model --replicas="${REPLICAS:-1:4}" --gpus="${GPUS:-0}"
    --port="$port" --ray=auto)
front=("$PYTHON" -m prism_jax serve --decisions="http://127.0.0.1:$port/v1" --decision_model=model --questions=slots
    --ray=auto "$@")
if [[ -n ${DRY_RUN:-} ]]; then
    run "${replicas[@]}"
    run "${front[@]}"
else
    "${replicas[@]}" &
    behind=$!
    until "$PYTHON" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/readyz', timeout=5)" 2>/dev/null; do
        kill -0 "$behind" 2>/dev/null || { echo "error: the replicas have ended before they answered" >&2; exit 1; }
        sleep 1
    done
    "${front[@]}" &
    wait $!
fi
