#!/usr/bin/env bash
# Wrapper of nvcc for cargo (NVCC); DSF_NVCC is the compiler. It replaces Candle's kernels for quantised models and
# mixtures of experts, for convolutions and for sorting by empty files: the first take nine tenths of the compile time of
# its kernels, and nothing here runs them. A program that calls one does not link, or does not find it. Candle's other
# kernels are embedded in the binary as PTX, which the driver compiles. This script removes their kernels for f16, f8 and
# i64, those that compute in f64, and comments and blanks: three fifths of the text. Nothing here runs them; numbers in f64
# are only moved and converted on a GPU. It is called as nvcc-VERSION or nvcc-VERSION-quick: see cargo.sh.
arguments=("$@")
texts=
case $PWD in
    */candle-kernels-*)
        for i in "${!arguments[@]}"; do
            case ${arguments[i]} in
                --output-directory) texts=${arguments[i + 1]} ;;
                *src/moe/*.cu | *src/mmq_gguf/*.cu | *src/mmvq_gguf.cu | *src/quantized.cu | *src/conv.cu | *src/sort.cu)
                    mkdir -p "$DSF_CUDA_OUT/empty"
                    arguments[i]=$DSF_CUDA_OUT/empty/${arguments[i]##*/}
                    : > "${arguments[i]}" ;;
            esac
        done
        # The remaining kernels are compiled without optimisation, for a binary that only the mock driver runs.
        case $0 in *-quick) arguments=(--Ofast-compile=max "${arguments[@]}") ;; esac
        ;;
esac
"$DSF_NVCC" "${arguments[@]}" || exit
for source in "${arguments[@]}"; do
    text=$texts/${source##*/}
    text=${text%.cu}.ptx
    [[ -n $texts && $source == *.cu && -f $text ]] || continue
    sed -i -E 's|//.*||; s|[[:blank:]]+| |g; s|, |,|g; s|^ ||; s| $||; /^$/d' "$text"
    awk '/^\.visible \.entry [a-z0-9_]*_(f16|f8_e4m3|fp8_e4m3|i64)(_|\()/ { unused = 1 }
         /^\.visible \.entry [a-z0-9_]*_f64\(/ && !/ (affine|cast|const|copy2d|fill|gather|[is]a?|ucopy|where)_/ { unused = 1 }
         !unused { print }
         unused { depth += gsub(/{/, "{") - gsub(/}/, "}"); if (/}/ && depth == 0) unused = 0 }' "$text" > "$text.new"
    mv "$text.new" "$text"
done
