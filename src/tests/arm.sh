#!/usr/bin/env bash
# The program on 64-bit ARM, tried on another processor: it is built for aarch64, its loops are searched for NEON, and under
# qemu every mixer comes to the loss that it has here and the tests of the ops pass. Needs Rust's library for aarch64, which
# rustup adds, and Debian's compiler for it and qemu, which are installed if they are missing. What is built stays in
# target/. DSF names the program of this machine [default: target/release/dsf].
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$(realpath "${DSF:-target/release/dsf}")
arm=aarch64-unknown-linux-gnu
there=$PWD/target/$arm/release/dsf

skip() { echo "skipped: $1"; exit 0; }
fail() { echo "FAILED: $1" >&2; exit 1; }
part() { echo "== $1 (after $SECONDS s)"; }
have() { for tool; do command -v "$tool" >/dev/null || return 1; done; }

[ "$(uname)" = Linux ] || skip "qemu runs programs of Linux on Linux"
[ "$(uname -m)" != aarch64 ] || skip "this is 64-bit ARM: make test says more"
if ! have aarch64-linux-gnu-g++ aarch64-linux-gnu-objdump qemu-aarch64; then
    { [ "$(id -u)" = 0 ] && have apt-get; } || skip "no aarch64-linux-gnu-g++ or no qemu-aarch64; root on Debian installs them"
    { apt-get update -q && apt-get install -qy --no-install-recommends g++-aarch64-linux-gnu qemu-user; } \
        >/dev/null 2>&1 || skip "the compiler for aarch64 and qemu cannot be installed here"
fi
library() { [ -d "$(rustc --print target-libdir --target $arm)" ]; }
library || { have rustup && rustup target add $arm; } || skip "Rust's library for $arm cannot be added here"
library || skip "the rustc that is called is not the one that rustup adds a library for $arm to"

# Some tests compile kernels for an emulated GPU by g++ and load them. An emulated program that starts another starts it on
# this machine, so that g++ is to be a compiler of this machine whose results are for ARM.
mkdir -p target/arm/bin
ln -sf "$(command -v aarch64-linux-gnu-g++)" target/arm/bin/g++
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
export QEMU_SET_ENV=PATH=$PWD/target/arm/bin:$PATH
# One of the first processors, without any extension: what runs there runs on all.
export QEMU_CPU=cortex-a53 QEMU_LD_PREFIX=/usr/aarch64-linux-gnu

part "the program for aarch64"
cargo build --release --locked --target $arm --bin dsf
aarch64-linux-gnu-readelf -h "$there" | grep -q "Machine: *AArch64" || fail "$there is for another processor"
qemu-aarch64 --version | head -n 1
qemu-aarch64 "$there" --version

part "NEON: instructions that multiply vectors of four f32, by module"
vectors=$(aarch64-linux-gnu-objdump -dC --no-show-raw-insn "$there" | awk '
    /^[0-9a-f]+ </ { module = match($0, /<(dsf_ops::(runtime::)?[a-z0-9_]+|gemm_f32)/) ? substr($0, RSTART + 1, RLENGTH - 1) : "" }
    module != "" && /\tfm(ul|la)\tv[0-9]+\.4s/ { count[module]++ }
    END { for (module in count) print count[module], module }' | sort -rn)
echo "$vectors"
for module in gemm_f32 dsf_ops::{causal_attention,runtime::chunked,delta_rule,gated_scan,gla,selective_scan}; do
    grep -q " $module$" <<< "$vectors" || fail "no vectors in $module"
done

part "every mixer trained there and here"
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
trained() { # into which folder, by which program
    "${@:2}" mqar --preset smoke --mixer "$mixer" --out "$world/$1" --json | tail -n 1
}
loss() { sed -E 's/.*"test_loss":([0-9.e-]+).*/\1/' <<< "$1"; }
mixers=$("$here" mixers --json | sed -E 's/.*"mixer":"([^"]+)".*/\1/')
for mixer in $mixers; do
    on_arm=$(trained there qemu-aarch64 "$there")
    grep -q '"simd":"neon"' <<< "$on_arm" || fail "$mixer was not trained by NEON: $on_arm"
    echo "$mixer $(loss "$on_arm") $(loss "$(trained here "$here")")"
done > "$world/losses"
awk '
    { apart = ($2 - $3) / $3; if (apart < 0) apart = -apart }
    !(apart < 1e-5) { print "FAILED: a test loss of " $2 " on ARM and " $3 " here by " $1; failed = 1 }
    apart >= most { most = apart; which = $1 }
    END { printf "%d mixers, relative differences of test losses up to %.1e (%s)\n", NR, most, which; exit failed }' \
    "$world/losses"
[ "$(wc -l < "$world/losses")" -eq "$(wc -w <<< "$mixers")" ] || fail "not every mixer was trained"

# Those of kernels alone are left out: on an emulated GPU of an emulated processor they take longer than all the rest, and
# kernels do not know which processor is beside the GPU.
part "every test of the ops on the CPU"
cargo test --release --locked --target $arm -p dsf-ops -- --skip ::kernels --skip of_full_size
part "done"
