#!/usr/bin/env bash
# Finds the CUDA toolkit that builds the kernels: an installed one, else NVIDIA's wheels in .cuda/.
#   toolkit.sh fetch        downloads 105 MB unless there is a toolkit
#   toolkit.sh where        prints its folder
#   toolkit.sh libraries    downloads the libraries that dsf-cuda needs beside a driver, 480 MB
#   toolkit.sh disassembler prints the path of cuobjdump, and downloads 5 MB unless there is one
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fetched=$(dirname "$here")/.cuda

fail() { echo "error: $*" >&2; exit 1; }

# Whether a folder has nvcc of CUDA 12.8 or later, the first version that supports every GPU we compile for.
serves() {
    local release
    [ -x "$1/bin/nvcc" ] || return 1
    release=$("$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
    [ "$(printf '%s\n' 12.8 "$release" | sort -V | head -n 1)" = 12.8 ]
}

installed() {
    local nvcc root
    nvcc=$(command -v nvcc || true)
    [ -z "$nvcc" ] || nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$nvcc" /usr/local/cuda /opt/cuda; do
        if [ -n "$root" ] && serves "$root"; then echo "$root"; return; fi
    done
    return 1
}

# The list is copied last: it marks a folder as complete and records its versions.
complete() { cmp -s "$here/$1.txt" "$fetched/$1/$1.txt"; }

# fetch NAME: downloads the packages of cuda/NAME.txt into .cuda/NAME
fetch() {
    complete "$1" && return
    command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 ||
        fail "fetching NVIDIA's packages needs python3 with pip; install them, or a CUDA toolkit of 12.8 or later"
    local wheels=$fetched/wheels-$1 unpacked=$fetched/unpacked-$1
    local pip=(python3 -m pip --disable-pip-version-check --quiet)
    # Complete wheels stay if the download is interrupted, and are not downloaded twice.
    "${pip[@]}" download --no-deps --only-binary=:all: --require-hashes -r "$here/$1.txt" -d "$wheels" ||
        fail "could not download the packages of cuda/$1.txt; the same command continues from here"
    rm -rf "$unpacked" "${fetched:?}/$1"
    PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --no-deps --no-index --find-links "$wheels" \
        --require-hashes -r "$here/$1.txt" --target "$unpacked"
    mv "$unpacked/nvidia/cu13" "$fetched/$1"
    ln -s lib "$fetched/$1/lib64"
    rm -rf "$unpacked" "$wheels"
    cp "$here/$1.txt" "$fetched/$1/$1.txt"
}

case "${1:-}" in
    fetch)
        if root=$(installed); then echo "CUDA toolkit: $root (installed)"; exit; fi
        fetch toolkit
        serves "$fetched/toolkit" || fail "$fetched/toolkit/bin/nvcc does not run on this machine"
        echo "CUDA toolkit: $fetched/toolkit (fetched)" ;;
    where)
        installed || { complete toolkit && echo "$fetched/toolkit"; } ||
            fail "no CUDA toolkit of 12.8 or later here; \`make cuda-toolkit\` fetches the compiler" ;;
    libraries)
        fetch libraries
        echo "CUDA libraries: $fetched/libraries/lib, where dsf-cuda looks for them" ;;
    disassembler)
        root=$(installed || true)
        if [ ! -x "$root/bin/cuobjdump" ]; then
            fetch disassembler
            root=$fetched/disassembler
        fi
        echo "$root/bin/cuobjdump" ;;
    *) fail "usage: toolkit.sh fetch | where | libraries | disassembler" ;;
esac
