#!/usr/bin/env bash
# Runs `make test` on Python 3.13, for which pip installs the newest JAX; `make studies` ends with it. Where this machine
# has none, Debian's debootstrap makes a root that has (ROOT, build/trixie unless set; 0.4 GB, and 6 GB in .venv-3.13).
# The checkout is mounted there, and what lies beside it:
#   launch/python.sh [COMMAND...]   # such as: launch/python.sh make test-slow PYTHON=python3.13 VENV=.venv-3.13
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
(($#)) || set -- make test PYTHON=python3.13 VENV=.venv-3.13
if python3.13 -c '' 2>/dev/null; then exec "$@"; fi

skip() {
    echo "python.sh: skipped: found no python3.13 that runs, and $1" >&2
    exit 0
}
[[ $EUID == 0 ]] || skip "user $EUID, expected root, who may make one with debootstrap"
command -v debootstrap >/dev/null || skip "no debootstrap; apt-get install debootstrap"
unshare --mount true 2>/dev/null || skip "no right to mount; a container needs CAP_SYS_ADMIN"

ROOT=$(realpath -m "${ROOT:-build/trixie}")
if [[ ! -d $ROOT ]]; then
    rm -rf "$ROOT.partial"
    mkdir -p "$ROOT.partial"
    debootstrap --variant=minbase --include=ca-certificates,git,make,python3-venv trixie "$ROOT.partial"
    mv "$ROOT.partial" "$ROOT"
fi
cp /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/" # a proxy's certificate may be among them
# The mounts end with the process.
exec unshare --mount bash -euc '
    mkdir -p "$0/srv/checkout"
    mount --bind . "$0/srv/checkout"
    if [[ -d ../shared ]]; then mkdir -p "$0/srv/shared" && mount --bind ../shared "$0/srv/shared"; fi
    for part in dev proc sys; do mount --rbind "/$part" "$0/$part"; done
    exec chroot "$0" env HOME=/root PATH=/usr/bin:/usr/sbin bash -c "cd /srv/checkout && exec \"\$@\"" bash "$@"
' "$ROOT" "$@"
