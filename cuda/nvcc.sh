#!/usr/bin/env bash
# Stands between cargo and nvcc (NVCC); DSF_NVCC is the compiler. Candle's kernels for quantised models and mixtures of
# experts, nine tenths of the time that all of its kernels take, become empty: nothing here runs them, and a program
# that calls one does not link, or does not find it. The text of the others, which goes into the binary as it is and is
# compiled by the driver, loses those for numbers that nothing here has (f16, f8), and comments and blanks: a third of it.
# Called as nvcc-VERSION, or as nvcc-VERSION-quick: see cargo.sh.
arguments=("$@")
texts=
case $PWD in
    */candle-kernels-*)
        for i in "${!arguments[@]}"; do
            case ${arguments[i]} in
                --output-directory) texts=${arguments[i + 1]} ;;
                *src/moe/*.cu | *src/mmq_gguf/*.cu | *src/mmvq_gguf.cu | *src/quantized.cu)
                    mkdir -p "$DSF_CUDA_OUT/empty"
                    arguments[i]=$DSF_CUDA_OUT/empty/${arguments[i]##*/}
                    : > "${arguments[i]}" ;;
            esac
        done
        # Those that are left, without optimisation, for a binary that is linked and not used.
        case $0 in *-quick) arguments=(--Ofast-compile=max "${arguments[@]}") ;; esac
        ;;
esac
"$DSF_NVCC" "${arguments[@]}" || exit
for source in "${arguments[@]}"; do
    text=$texts/${source##*/}
    text=${text%.cu}.ptx
    [[ -n $texts && $source == *.cu && -f $text ]] || continue
    sed -i -E 's|//.*||; s|[[:blank:]]+| |g; s|, |,|g; s|^ ||; s| $||; /^$/d' "$text"
    awk '/^\.visible \.entry [a-z0-9_]*_(f16|f8_e4m3|fp8_e4m3)(_|\()/ { unused = 1 }
         !unused { print }
         unused { depth += gsub(/{/, "{") - gsub(/}/, "}"); if (/}/ && depth == 0) unused = 0 }' "$text" > "$text.new"
    mv "$text.new" "$text"
done
