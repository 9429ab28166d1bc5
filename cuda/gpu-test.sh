#!/usr/bin/env bash
# Runs `make gpu-test` on a machine with an NVIDIA GPU, with or without Rust: if compute-sanitizer is installed, checks
# the memory accesses and races of the kernels; then runs every check and measurement of `dsf bench --device cuda`, into
# results/bench-gpu.csv.
#
#     PYTHON=FILE    Python with torch: alternates with PyTorch, and uses its CUDA libraries if there is no toolkit
#     BENCH=FLAGS    additional flags, such as "--only check" or "--minutes 20"
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
    echo "compute-sanitizer is not on PATH: memory accesses and races of the kernels are not checked" >&2
fi

echo "== dsf bench"
# shellcheck disable=SC2086 # BENCH is words
"$dsf" bench --device cuda --csv results/bench-gpu.csv ${python[@]+"${python[@]}"} ${BENCH:-} || failed=$?
exit "$failed"
