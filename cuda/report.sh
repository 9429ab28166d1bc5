#!/usr/bin/env bash
# Prints the twenty worst rows of the kernels' report, by spills, stack and registers.
set -euo pipefail
[ -f "$1" ] || { echo "error: no $1; \`make cuda\` writes it" >&2; exit 1; }
{ head -n 1 "$1"; tail -n +2 "$1" | sort -t, -k7,7nr -k6,6nr -k4,4nr; } |
    awk -F, 'NR <= 21 { printf "%-20s %-44s %-7s %9s %7s %6s %6s\n", $1, $2, $3, $4, $5, $6, $7 }'
