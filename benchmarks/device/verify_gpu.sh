#!/usr/bin/env bash
# From measured kernels to a verified frontier on the GPU at hand, in one go and within a time limit:
# kernel tables, the built-in engine's steps, a search with both, its picks on that engine.
#
#   benchmarks/device/verify_gpu.sh [OUT]
#
# OUT (default: $OUT, else ./verified) gets summary.json (what was reached, and the verdict),
# verification.json and verified.tar.gz (tables, step logs, the search, all measurements). With the
# same OUT it goes on with what is missing. Nothing is asked of a hub: weights are random.
# Variables:
#   LIMIT_S   seconds in all (default 660)
#   DEVICE    cuda (default) or cpu, which tries the whole path out on a tiny model in some minutes
#   SETUP     folder with space.yaml, served.yaml, loads.yaml and setup.yaml
#             (default: builtin/h200 or builtin/cpu beside this script)
#   PYTHON    a Python that has PyTorch (default python3)
#   WHEELS    folder of wheels of what that Python lacks of dynosim's dependencies, where no index
#             can be reached: pip download --only-binary=:all: -d WHEELS annotated-types cyclopts
#             moocore optuna simpy aiohttp
# Nothing is installed where `import dynosim, torch` already works.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-${OUT:-verified}}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
limit=${LIMIT_S:-660}
started=$SECONDS
case $device in cuda*) setup=${SETUP:-$here/builtin/h200} ;; *) setup=${SETUP:-$here/builtin/cpu} ;; esac
mkdir -p "$out"
out=$(cd "$out" && pwd)

if ! "$python" -c 'import dynosim, torch' 2>/dev/null; then
    if [ -n "${WHEELS:-}" ]; then
        site=$(mktemp -d)
        "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
        export PYTHONPATH=$root/src:$site
    else
        [ -x "$out/venv/bin/python" ] || "$python" -m venv --system-site-packages "$out/venv"
        python=$out/venv/bin/python
        # PyTorch is left alone where there is one: its build has to match the driver.
        extra=$("$python" -c 'import torch' 2>/dev/null && echo "" || echo ",measure")
        "$python" -m pip install --quiet "$root[verify$extra]"
        "$python" -m pip install --quiet nvidia-ml-py || echo "no nvidia-ml-py: nvidia-smi is asked" >&2
    fi
fi

pack() {
    [ ! -f "$out/search/verification/verification.json" ] \
        || cp "$out/search/verification/verification.json" "$out/"
    (cd "$out" && find . -type f -not -path './venv/*' -not -name 'verified.tar.gz' | sort \
        | tar -czf verified.tar.gz -T -)
}
trap pack EXIT

"$python" "$here/builtin/stages.py" --setup "$setup" --device "$device" --out "$out" \
    --budget-s "$((limit - (SECONDS - started)))"
