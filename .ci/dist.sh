#!/usr/bin/env bash
# Builds for every TARGET given an archive and a wheel in dist/, and writes their checksums. `make dist` calls it. Wheels of
# other systems than this one are in dist/other, so that `pip install dist/*.whl` takes the right one.
# Needs rustup and python3 with pip; compiler and linker for every target are zig's, from PyPI, in target/python.
# Two builds of one commit give the same bytes: times are those of the commit, paths are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$root/target/python/bin
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
glibc=2.28 # Debian 10, Ubuntu 18.10, RHEL 8, and the wheels' manylinux_2_28
most_bytes=40000000

fail() { echo "error: $1" >&2; exit 1; }
[ $# -gt 0 ] || fail "give the targets to build for, such as x86_64-unknown-linux-gnu"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
remap="--remap-path-prefix=$root=dsf --remap-path-prefix=$CARGO_HOME=cargo"
export SOURCE_DATE_EPOCH
export CFLAGS="-ffile-prefix-map=$root=dsf -ffile-prefix-map=$CARGO_HOME=cargo" CARGO_INCREMENTAL=0
export PATH=$python:$PATH

# Zig brings the libraries of macOS, but none of its frameworks. The one that is linked, for the time zone in a crate
# below parquet, is described to the linker by the functions that it is asked for.
frameworks=$root/target/frameworks
mkdir -p "$frameworks/CoreFoundation.framework"
cat > "$frameworks/CoreFoundation.framework/CoreFoundation.tbd" <<'TBD'
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation'
exports:
  - targets: [ arm64-macos ]
    symbols: [ _CFRelease, _CFStringGetBytes, _CFStringGetCStringPtr, _CFStringGetLength, _CFTimeZoneCopySystem,
               _CFTimeZoneGetName, _CFTimeZoneResetSystem ]
...
TBD

# The binary of a target, as it lies in the wheel and in the archive.
binary() { echo "target/archives/$1/dsf"; }

# Fails unless the binary of a target runs on the systems that are promised: old glibc on Linux, system libraries alone
# on macOS, and of a size to download.
check() {
    local file needed
    file=$(binary "$1")
    [ "$(wc -c < "$file")" -le $most_bytes ] || fail "$file has more than $most_bytes bytes"
    case $1 in
        *-linux-gnu)
            needed=$(readelf --version-info --wide "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
            [ "$(printf '%s\n' "$needed" $glibc | sort -V | tail -n 1)" = $glibc ] || fail "$file needs glibc $needed"
            echo "$file needs glibc $needed" ;;
        *-apple-darwin)
            "$python/python" - "$file" <<'PY' ;;
import sys
from macholib.MachO import MachO
libraries = [name for header in MachO(sys.argv[1]).headers for _, _, name in header.walkRelocatables()]
other = [name for name in libraries if not name.startswith(("/usr/lib/", "/System/Library/"))]
sys.exit(f"error: {sys.argv[1]} needs {other}") if other else print(sys.argv[1], "needs", *libraries)
PY
    esac
}

mkdir -p dist/other
this=$(rustc -vV | sed -n 's/^host: //p')
for target; do
    [ -d "$(rustc --print target-libdir --target "$target")" ] || rustup target add "$target"
    export RUSTFLAGS=$remap
    case $target in
        *-linux-gnu) policy=(--compatibility "manylinux_${glibc/./_}") ;;
        *-apple-darwin) policy=() MACOSX_DEPLOYMENT_TARGET=11.0 RUSTFLAGS+=" -Clink-arg=-F$frameworks"
            export MACOSX_DEPLOYMENT_TARGET ;;
        *) fail "$target: only *-linux-gnu and *-apple-darwin can be built" ;;
    esac
    rm -rf "target/archives/$target"
    mkdir -p "target/archives/$target"
    (cd src/python && maturin build --zig --profile dist --locked --target "$target" "${policy[@]}" --out "$root/target/archives/$target")
    wheel=$(echo "target/archives/$target"/*.whl)
    "$python/python" -m zipfile -e "$wheel" "target/archives/$target/wheel"
    install -m 755 "target/archives/$target/wheel/dsf-$version.data/scripts/dsf" "$(binary "$target")"
    check "$target"
    case $target in "$this") mv "$wheel" dist/ ;; *) mv "$wheel" dist/other/ ;; esac
done

# Manual pages and completions come from a binary that runs on this machine.
host=
for target in "$@"; do
    if [ -z "$host" ] && "$(binary "$target")" --version >/dev/null 2>&1; then host=$(binary "$target"); fi
done
[ -n "$host" ] || { make build; host=target/release/dsf; }

for target; do
    .ci/archive.sh "dsf-$version-$target" "$(binary "$target")" "$host"
done
(cd dist && find . -name 'dsf-*' -printf '%P\n' | sort | xargs sha256sum > SHA256SUMS && cat SHA256SUMS)
