#!/usr/bin/env bash
# Wrapper of rustc for cargo (RUSTC_WRAPPER) in builds with CUDA.
program=$1
shift
first=()
case ${1:-} in
    *rustc) first=("$1"); shift ;; # clippy is called with the compiler's name before its arguments
esac
case " $* " in
    # Lets cudarc open the CUDA libraries at run time, although Candle selects other features of it: a binary linked to
    # them would not start on a machine without a driver.
    *" --crate-name cudarc "*) set -- "$@" --cfg 'feature="dynamic-loading"' ;;
    # Merges identical functions and omits the relocation table, which saves 3 MB. Identical data must not be merged:
    # mimalloc distinguishes two of its tables by their addresses.
    *" --crate-name dsf "*" --crate-type bin "*)
        [ -z "${DSF_CUDA_FOLD:-}" ] || set -- "$@" -C relocation-model=static -C link-arg=-Wl,--icf=all ;;
esac
# These libraries are found before those of an installed toolkit; see cargo.sh.
exec "$program" "${first[@]}" -L "native=$DSF_CUDA_OUT/links" "$@"
