#include "causal_attention.cuh"

ATTEND_ALL(y, Y)
