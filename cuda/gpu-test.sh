#!/usr/bin/env bash
# What `make gpu-test` does on a machine with an NVIDIA GPU, with or without Rust: the kernels under a
# check of their memory and their races where compute-sanitizer is there, then every check and
# measurement of `dsf bench --device cuda`, into results/bench-gpu.csv.
#
#     PYTHON=FILE    a Python with torch: PyTorch by turns, and its CUDA libraries where there is no toolkit
#     BENCH=FLAGS    more flags, such as "--only check" or "--minutes 20"
set -euo pipefail
cd "$(dirname "$0")/.."
dsf=${DSF:-target/cuda/dsf-cuda}
[ -x "$dsf" ] || make cuda

python=()
if [ -n "${PYTHON:-}" ]; then
    python=(--python "$PYTHON")
    # cuBLAS and cuRAND lie in .../site-packages/nvidia/*/lib
    packages=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for lib in "$packages"/nvidia/*/lib; do
        [ ! -d "$lib" ] || LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    done
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
fi

failed=0
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        echo "== compute-sanitizer, $tool"
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$dsf" bench --device cuda \
            --only "check small" --again --csv "target/cuda/$tool.csv" --quiet || failed=$?
    done
else
    echo "compute-sanitizer is not on PATH: the kernels' memory and races go unchecked" >&2
fi

echo "== dsf bench"
# shellcheck disable=SC2086 # BENCH is words
"$dsf" bench --device cuda --csv results/bench-gpu.csv ${python[@]+"${python[@]}"} ${BENCH:-} || failed=$?
exit "$failed"
