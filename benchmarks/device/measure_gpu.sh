#!/usr/bin/env bash
# Measures the kernel tables of the GPU at hand and packs them, in one go and within a time limit.
#
#   benchmarks/device/measure_gpu.sh [OUT]
#
# OUT (default: ./measured) gets the tables, the ledger and tables.tar.gz. Run it again with the
# same OUT to measure what the time did not reach. Variables:
#   LIMIT_S      seconds to measure for (default 420; on an H200 all is done before)
#   PYTHON       a Python that has PyTorch (default python3)
#   GRID, MODEL  passed on as --grid and --model
# Nothing is installed where `import dynosim, torch` already works; otherwise a virtual environment
# is made in OUT/venv that also sees the packages of $PYTHON.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-measured}
python=${PYTHON:-python3}
limit=${LIMIT_S:-420}
mkdir -p "$out"

if ! "$python" -c 'import dynosim, torch' 2>/dev/null; then
    [ -x "$out/venv/bin/python" ] || "$python" -m venv --system-site-packages "$out/venv"
    python=$out/venv/bin/python
    # PyTorch is left alone where there is one: its build has to match the driver.
    extra=$("$python" -c 'import torch' 2>/dev/null && echo "" || echo "[measure]")
    "$python" -m pip install --quiet "$root$extra"
    "$python" -m pip install --quiet nvidia-ml-py || echo "no nvidia-ml-py: nvidia-smi is asked" >&2
fi

options=(--device cuda --out "$out" --budget-s "$limit" --compare)
[ -z "${GRID:-}" ] || options+=(--grid "$GRID")
[ -z "${MODEL:-}" ] || options+=(--model "$MODEL")

pack() {
    (cd "$out" && find . -name '*.csv' -o -name '*.yaml' -o -name '*.json' -o -name '*.jsonl' \
        -o -name 'report.txt' | grep -v '^./venv' | sort | tar -czf tables.tar.gz -T -)
}
trap pack EXIT

# A minute more than the budget, for the start and the last shape; a kill loses no finished shape,
# and the tables of what was finished are written then.
if ! timeout "$((limit + 60))" "$python" -m dynosim calibrate measure "${options[@]}" \
    | tee "$out/report.txt"; then
    echo "broken off: writing the tables of what was measured" >&2
    "$python" -m dynosim calibrate measure --budget-s 0 --out "$out" --compare \
        | tee "$out/report.txt"
fi
