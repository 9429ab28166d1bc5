#!/usr/bin/env bash
# Stands between cargo and rustc (RUSTC_WRAPPER) in builds with CUDA.
program=$1
shift
first=()
case ${1:-} in
    *rustc) first=("$1"); shift ;; # clippy is called with the compiler's name before its arguments
esac
case " $* " in
    # cudarc can open the CUDA libraries at run time, which candle's choice of its features rules
    # out: a binary linked to them would not start on a machine without a driver.
    *" --crate-name cudarc "*) set -- "$@" --cfg 'feature="dynamic-loading"' ;;
    # Of functions that are equal the binary holds one, and no table of the addresses in it: 3 MB less. Equal data may not be
    # shared, too: mimalloc tells two of its tables apart by where they are.
    *" --crate-name dsf "*" --crate-type bin "*)
        [ -z "${DSF_CUDA_FOLD:-}" ] || set -- "$@" -C relocation-model=static -C link-arg=-Wl,--icf=all ;;
esac
# First in the search for libraries, before those of an installed toolkit; see cargo.sh.
exec "$program" "${first[@]}" -L "native=$DSF_CUDA_OUT/links" "$@"
