#!/usr/bin/env bash
# Checks and measures dsf on a machine with a GPU, phase after phase until LIMIT is over, with or without Rust:
#
#     OUT=DIR bash cuda/lease.sh checks times peers deep
#
# checks    every op at two sizes and every mixer, launched and replayed, compared with the CPU
# times     rates of the GPU as PyTorch reaches them, training steps, then ops
# peers     steps and ops alternating with PyTorch
# deep      compute-sanitizer, then ops at sizes beyond 2^31 elements
#
# Each group of cases is a process of its own with a time limit, so a kernel that ends its context or does not return
# costs only its own rows. The rows go to $OUT/bench-gpu.csv and a line for each failure to $OUT/faults.txt.
#
#     DSF=FILE       the binary (target/cuda/dsf-cuda)
#     LIMIT=540      seconds after which nothing new is started
#     PYTHON=FILE    Python with torch (python3): rates, peers, and its CUDA libraries if there is no toolkit
#     BEFORE=FILE    rows of earlier calls; new rows replace those with the same title
#     DEVICE=cuda    cpu tries the script without a GPU
#     JOBS=8         processes at a time in `checks`
set -uo pipefail
cd "$(dirname "$0")/.."
dsf=${DSF:-target/cuda/dsf-cuda} device=${DEVICE:-cuda} python=${PYTHON:-$(command -v python3 || true)}
out=${OUT:-target/cuda/lease} jobs=${JOBS:-8} deadline=$((EPOCHSECONDS + ${LIMIT:-540}))
phases=${*:-checks times peers deep}
mkdir -p "$out"
work=$(mktemp -d)
table=$out/bench-gpu.csv faults=$out/faults.txt
[ -z "${BEFORE:-}" ] || cp "$BEFORE" "$table"
: >"$faults"

if [ "$device" != cpu ]; then
    # cuBLAS and cuRAND lie in .../site-packages/nvidia/*/lib if torch brought them.
    packages=$([ -z "$python" ] || "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for lib in "$packages"/nvidia/*/lib /usr/local/cuda/lib64; do
        [ ! -d "$lib" ] || LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    done
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
fi
# As many hardware queues as recorded graphs may use at a time.
export CUDA_DEVICE_MAX_CONNECTIONS=32

left() { echo $((deadline - EPOCHSECONDS)); }
# within SECONDS: SECONDS, or what is left of the limit, at least one.
within() { local rest; rest=$(left); echo $((rest > $1 ? $1 : rest > 0 ? rest : 1)); }
heading() { printf '\n== %s (%s s left)\n' "$1" "$(left)"; }

# measure SECONDS THREADS TEXT [FLAGS...]: measures the cases whose titles contain TEXT within SECONDS and the limit.
measure() {
    local limit=$1 threads=$2 text=$3 rest=$((deadline - EPOCHSECONDS)) cut='' file code
    shift 3
    [ "$rest" -gt "$limit" ] || limit=$rest cut=yes
    [ "$limit" -gt 0 ] || { echo "$text" >>"$work/unfinished"; return 0; }
    file=$work/$(tr -c 'a-z0-9\n' _ <<<"$text").csv
    timeout -k 5 "$limit" "$dsf" bench --device "$device" --only "$text" --again --minutes 9 --threads "$threads" \
        --csv "$file" --quiet "$@" >"$file.log" 2>&1
    code=$?
    case $code in
        0) ;;
        4) grep '^error' "$file.log" >>"$faults" ;;
        124 | 137) [ -n "$cut" ] && echo "$text" >>"$work/unfinished" || echo "$text: no end within $limit s" >>"$faults" ;;
        *) echo "$text: exit code $code: $(tail -n 2 "$file.log" | tr '\n' ' ')" >>"$faults" ;;
    esac
    return 0
}
export -f measure
export dsf device work faults deadline

# Measures each line of the input, several at a time.
measure_all() { xargs -r -P "$1" -d '\n' -I{} bash -c 'measure "$0" 2 "$1"' "$2" {}; }

ops() { "$dsf" bench op --help | sed -n '/^Ops:/,$p' | tail -n +2 | awk 'NF { print $1 }'; }
mixers() { "$dsf" mixers --json | sed -n 's/.*"mixer":"\([^"]*\)".*/\1/p'; }

# Adds the new rows to the table; of several rows with one title, the last one counts.
gather() {
    local part
    for part in "$work"/*.csv; do
        [ -s "$part" ] || continue
        if [ -s "$table" ]; then tail -n +2 "$part" >>"$table"; else cp "$part" "$table"; fi
    done
    rm -f "$work"/*.csv
}

summary() {
    gather
    cat "$work"/*.log >"$out/log.txt" 2>/dev/null
    printf '\n== faults\n'
    cut -c 1-300 "$faults"
    [ ! -s "$work/unfinished" ] || echo "not finished in time: $(wc -l <"$work/unfinished") cases"
    [ ! -s "$table" ] || [ -z "$python" ] || "$python" cuda/lease.py "$table"
    rm -rf "$work"
}
trap summary EXIT

checks() {
    local form
    heading "a model trains, launched and recorded"
    if [ "$device" != cpu ]; then
        nvidia-smi --query-gpu=name,driver_version,memory.used,clocks.max.sm --format=csv,noheader
        for form in --cuda-graph --no-cuda-graph; do
            timeout "$(within 90)" "$dsf" mqar --preset smoke --device "$device" --out "$work/results$form" "$form" 2>&1 | tail -n 3
            [ "${PIPESTATUS[0]}" = 0 ] || echo "mqar --preset smoke $form: exit code ${PIPESTATUS[0]}" >>"$faults"
        done
    fi
    heading "ops"
    ops | sed 's/.*/check small & \ncheck medium & /' | measure_all "$jobs" 90
    gather
    heading "mixers"
    mixers | sed 's/.*/model & /' | measure_all "$jobs" 120
}

times() {
    local mixer size op
    if [ "$device" != cpu ] && [ -n "$python" ]; then
        heading "rates"
        timeout "$(within 90)" "$python" cuda/rates.py 2>&1 | tee "$out/rates.txt"
    fi
    heading "steps"
    for mixer in softmax s6 ssd mamba delta-net gla linear qlstm; do
        for size in 512,64,64,64 64,512,512,256; do
            [ "$(left)" -lt 10 ] || measure 60 8 "step $mixer $size"
        done
    done
    measure 60 8 "wikitext"
    measure 60 8 "--task lra"
    gather
    heading "ops"
    for op in selective_scan causal_attention delta_rule gla ssd cross_entropy linear mlp add_layer_norm gated_scan; do
        [ "$(left)" -lt 20 ] || measure 60 8 "op $op "
    done
}

peers() {
    heading "PyTorch"
    [ -z "$python" ] || measure "$(left)" 8 ".py" --python "$python"
}

deep() {
    local tool op
    if command -v compute-sanitizer >/dev/null; then
        for tool in "memcheck --track-stream-ordered-races all" racecheck synccheck; do
            heading "compute-sanitizer, $tool"
            [ "$(left)" -gt 0 ] || break
            # shellcheck disable=SC2086 # words
            timeout $(($(left) < 110 ? $(left) : 110)) compute-sanitizer --tool $tool --error-exitcode 9 "$dsf" bench --device "$device" \
                --only "check small" --again --csv "$work/sanitized.csv" --quiet >"$out/sanitizer-${tool%% *}.txt" 2>&1
            echo "exit code $?; $(grep -c '^check,' "$work/sanitized.csv") rows"
            grep 'SUMMARY' "$out/sanitizer-${tool%% *}.txt"
            rm -f "$work/sanitized.csv"
        done
    fi
    heading "large"
    ops | sed 's/.*/check large & /' | measure_all 2 150
}

for phase in $phases; do
    case $phase in
        checks | times | peers | deep)
            [ "$(left)" -lt 10 ] || "$phase"
            gather
            ;;
        *) echo "unknown phase $phase: checks, times, peers or deep" >&2; exit 2 ;;
    esac
done
[ ! -s "$faults" ] || exit 4
