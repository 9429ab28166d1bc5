"""Makes golden files with NumPy alone, in float64. `NAME-discretised.safetensors` are those of the option
`discretization`: the recurrences of S6, the released SSD, the core of Mamba-2, Mamba and Mamba-2 as loops over time,
with the zero-order hold in the cases `a` and `s` and the bilinear transform in `b`. `s4d_lin_euler` is S4D by forward
Euler, a loop over time; `hyena-ordered` is Hyena of orders 3 and 4, by sums over lags; `s4_dplr` is S4 with dense
matrices of real and imaginary parts, C from C (I - A^M) by a solve, and a loop over time, in case `b` with rank 2 and
for more steps than M; `taylor_attention_reference-unit` and
`-scaled` are TaylorShift, by its weights; `lru-linear` is the LRU with
eigenvalues by their parts, with and without gamma; `lightning_attention-lrpe` is lightning attention with LRPE, by
the weights of all pairs; `lmu_recurrent` is the LMU with its recurrent path, a loop over time;
`retnet_block-group` is RetNet's layer with the angles and the norm of its authors; `lru_dense` is a linear RNN;
`sinkhorn-network` is Sinkhorn attention with its sorting network, `-bidirectional` over whole documents, in cases `b`
and `c` with SortCut; `spatten_cascade` is a later layer of SpAtten after
layers of the same parameters and input, in case `b` without the smallest weights and in `c` quantized;
`s4d_lin_euler-bidirectional` and `gru-bidirectional` are two passes over documents of the `lengths` in the file, whose
second one is under `backward.` and reads them from their last token to their first. Gradients are complex-step
derivatives: for a real loss f of x,
df/dx = Im f(x + i h)/h, without a difference that could cancel. Run `python make_numpy.py FOLDER`; a minute.

The cases `a`, `b` and `c` have the fields of make.py; `s` has one sequence `u`, its output `y`, and the matrices of the
system along it, `dsf.lambda`, `dsf.b`, `dsf.c`, `dsf.d` and `dsf.phi`.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

A = {"B": 2, "L": 17, "d": 8, "n": 4, "discretization": "zoh"}
B = {"B": 2, "L": 40, "d": 12, "n": 6, "discretization": "bilinear"}
S = {"B": 1, "L": 6, "d": 4, "n": 3, "discretization": "zoh"}

STEP = 1e-30


def softplus(x):
    return np.log(1 + np.exp(x))


def silu(x):
    return x / (1 + np.exp(-x))


def causal(p, x):
    """The convolution of four taps over the past, then SiLU."""
    padded = np.concatenate([np.zeros_like(x[:, :3]), x], 1)
    return silu(sum(padded[:, i : i + x.shape[1]] * p["conv_w"][:, i] for i in range(4)) + p["conv_b"])


def discrete(rule, delta, a):
    """The decay and the factor of the input, for steps (.., E, 1) and rates a < 0. The hold is written by sinh, which
    does not cancel near 0: (e^z - 1)/a = 2 e^(z/2) sinh(z/2)/a."""
    z = delta * a
    if rule == "zoh":
        return np.exp(z), 2 * np.exp(z / 2) * np.sinh(z / 2) / a
    return (1 + z / 2) / (1 - z / 2), delta / (1 - z / 2)


def along_time(decay, write, read):
    """o (B, L, E) for decay, write = factor x b and read, (B, L, E, n) each."""
    state, os = np.zeros_like(write[:, 0]), []
    for t in range(write.shape[1]):
        state = decay[:, t] * state + write[:, t]
        os.append((state * read[:, t]).sum(-1))
    return np.stack(os, 1)


def repeated(x, times):
    """Each of the last axis, `times` times in a row."""
    return np.repeat(x, times, -1)


class Parts:
    """The recurrence of one mixer along u: x, the decay, the factor of the input, b and c, and what surrounds them."""

    def __init__(self, x, delta, a, b, c, rule, skip, value, out):
        self.x, self.skip, self.value, self.out = x, skip, value, out
        decay, factor = discrete(rule, delta[..., None], a)
        shape = np.broadcast_shapes(decay.shape, b.shape)
        self.decay = np.broadcast_to(decay, shape)
        self.write = np.broadcast_to(factor * b, shape)
        self.read = np.broadcast_to(c, shape)

    def o(self):
        return along_time(self.decay, self.write * self.x[..., None], self.read) + self.skip * self.x


def s6(p, u, sizes):
    delta = softplus(u @ p["wu"].T @ p["wdt"].T + p["bdt"])
    b, c = (u @ p[name].T for name in ["wb", "wc"])
    a = -np.exp(p["a_log"])
    parts = Parts(u, delta, a, b[:, :, None], c[:, :, None], sizes["discretization"], p["dskip"], None, p["wout"])
    return parts.o() @ p["wout"].T, parts


def s6_shapes(sizes):
    d, n, rank = sizes["d"], sizes["n"], sizes["dt_rank"]
    shapes = {"wu": (rank, d), "wdt": (d, rank), "bdt": (d,), "wb": (n, d), "wc": (n, d), "a_log": (d, n)}
    return shapes | {"dskip": (d,), "wout": (d, d)}


def ssd(p, u, sizes):
    delta = softplus(u @ p["wu"].T + p["bdt"])
    b, c = (u @ p[name].T for name in ["wb", "wc"])
    a = -np.exp(p["a_log"])
    parts = Parts(u, delta, a, b[:, :, None], c[:, :, None], sizes["discretization"], p["dskip"], None, p["wout"])
    return parts.o() @ p["wout"].T, parts


def ssd_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    shapes = {"wu": (1, d), "bdt": (d,), "wb": (n, d), "wc": (n, d), "a_log": (1,), "dskip": (d,)}
    return shapes | {"wout": (d, d)}


def ssd_mamba2(p, u, sizes):
    width = sizes["d"] // sizes["heads"]
    delta = repeated(softplus(u @ p["wdt"].T + p["bdt"]), width)
    x, b, c = (u @ p[name].T for name in ["wx", "wb", "wc"])
    a, skip = -np.exp(repeated(p["a_log"], width))[:, None], repeated(p["dskip"], width)
    parts = Parts(x, delta, a, b[:, :, None], c[:, :, None], sizes["discretization"], skip, p["wx"], p["wout"])
    return parts.o() @ p["wout"].T, parts


def ssd_mamba2_shapes(sizes):
    d, n, heads = sizes["d"], sizes["n"], sizes["heads"]
    shapes = {"wx": (d, d), "wb": (n, d), "wc": (n, d), "wdt": (heads, d), "wout": (d, d)}
    return shapes | {name: (heads,) for name in ["bdt", "a_log", "dskip"]}


def mamba(p, u, sizes):
    x, z = np.split(u @ p["win"].T, 2, -1)
    x = causal(p, x)
    delta = softplus(x @ p["wu"].T @ p["wdt"].T + p["bdt"])
    b, c = (x @ p[name].T for name in ["wb", "wc"])
    a = -np.exp(p["a_log"])
    parts = Parts(x, delta, a, b[:, :, None], c[:, :, None], sizes["discretization"], p["dskip"], None, None)
    return (parts.o() * silu(z)) @ p["wout"].T, None


def mamba_shapes(sizes):
    d, n, width, rank = sizes["d"], sizes["n"], 2 * sizes["d"], sizes["dt_rank"]
    shapes = {"win": (2 * width, d), "conv_w": (width, 4), "conv_b": (width,), "wu": (rank, width)}
    shapes |= {"wdt": (width, rank), "bdt": (width,), "wb": (n, width), "wc": (n, width), "a_log": (width, n)}
    return shapes | {"dskip": (width,), "wout": (d, width)}


def mamba2(p, u, sizes):
    n, heads, groups, width = sizes["n"], sizes["heads"], sizes["groups"], 2 * sizes["d"]
    z, xbc, dt = np.split(u @ p["win"].T, [width, 2 * width + 2 * groups * n], -1)
    x, b, c = np.split(causal(p, xbc), [width, width + groups * n], -1)
    of_channels = lambda t: np.repeat(t.reshape(*t.shape[:2], groups, n), width // groups, 2)
    delta = repeated(softplus(dt + p["bdt"]), width // heads)
    a, skip = (repeated(p[name], width // heads) for name in ["a_log", "dskip"])
    a = -np.exp(a)[:, None]
    parts = Parts(x, delta, a, of_channels(b), of_channels(c), sizes["discretization"], skip, None, None)
    gated = parts.o() * silu(z)
    normed = gated / np.sqrt((gated * gated).mean(-1, keepdims=True) + 1e-5)
    return (normed * p["norm"]) @ p["wout"].T, None


def mamba2_shapes(sizes):
    d, heads, width = sizes["d"], sizes["heads"], 2 * sizes["d"]
    mixed = width + 2 * sizes["groups"] * sizes["n"]
    shapes = {"win": (width + mixed + heads, d), "conv_w": (mixed, 4), "conv_b": (mixed,), "norm": (width,)}
    return shapes | {"wout": (d, width)} | {name: (heads,) for name in ["bdt", "a_log", "dskip"]}


def s4d(p, u, _sizes):
    """Forward Euler: h = (1 + step A) h + step u for each of the conjugate pairs, as real and imaginary parts."""
    step = np.exp(p["log_dt"])[:, None]
    re, im = 1 - step * np.exp(p["a_re_log"]), step * p["a_im"]
    h_re, h_im = np.zeros((2, u.shape[0], *re.shape), u.dtype)
    ys = []
    for t in range(u.shape[1]):
        h_re, h_im = re * h_re - im * h_im + step * u[:, t, :, None], re * h_im + im * h_re
        ys.append(2 * (p["c_re"] * h_re - p["c_im"] * h_im).sum(-1) + p["dskip"] * u[:, t])
    return np.stack(ys, 1), None


def s4d_shapes(sizes):
    d, m = sizes["d"], sizes["n"]
    return {"log_dt": (d,), "dskip": (d,)} | {name: (d, m) for name in ["a_re_log", "a_im", "c_re", "c_im"]}


def fast_size(needed):
    """The least even number of factors 2 and one of 1, 3, 5 and 9 that is not below `needed`."""
    return min(odd * 2 ** max(1, (-(-needed // odd) - 1).bit_length()) for odd in [1, 3, 5, 9])


def s4_dplr(p, u, sizes):
    """The states of a channel are (Re h, Im h), of which p^H h over all pairs is 2 (Re p, Im p) times them."""
    d, sets, m = sizes["d"], sizes["n_ssm"], sizes["n"] // 2
    eye, ys = np.eye(2 * m), []
    for channel in range(d):
        of, step = channel % sets, np.exp(p["log_dt"][channel])
        decay, turn = np.diag(-np.exp(p["a_re_log"][of])), np.diag(p["a_im"][of])
        a = np.block([[decay, -turn], [turn, decay]])
        for vector in np.concatenate([p["p"][0, :, of], p["p"][1, :, of]], -1):
            a = a - 2 * np.outer(vector, vector)
        left = eye - step / 2 * a
        a, b = np.linalg.solve(left, eye + step / 2 * a), np.linalg.solve(left, step * p["b"][:, of].reshape(-1))
        folded = 2 * np.concatenate([p["c"][0, channel], -p["c"][1, channel]])
        c = np.linalg.solve((eye - np.linalg.matrix_power(a, fast_size(sizes["l_max"]))).T, folded)
        h, y = np.zeros((u.shape[0], 2 * m), u.dtype), []
        for t in range(u.shape[1]):
            h = h @ a.T + u[:, t, channel, None] * b
            y.append(h @ c + p["dskip"][channel] * u[:, t, channel])
        ys.append(np.stack(y, 1))
    return np.stack(ys, 2), None


def s4_dplr_shapes(sizes):
    d, sets, m, rank = sizes["d"], sizes["n_ssm"], sizes["n"] // 2, 2 if sizes["start"] == "legt" else 1
    shapes = {"log_dt": (d,), "dskip": (d,), "a_re_log": (sets, m), "a_im": (sets, m)}
    return shapes | {"p": (2, rank, sets, m), "b": (2, sets, m), "c": (2, d, m)}


def hyena(p, u, sizes):
    length, d, order, freq = sizes["L"], sizes["d"], sizes["order"], sizes["freq"]
    padded = np.concatenate([np.zeros((u.shape[0], 2, (order + 1) * d)), u @ p["win"].T + p["bin"]], 1)
    z = sum(padded[:, i : i + length] * p["conv_w"][:, i] for i in range(3)) + p["conv_b"]
    *gates, v = np.split(z, order + 1, -1)
    bands, times = (sizes["emb"] - 1) // 2, np.linspace(0, 1, sizes["l_max"])[:length, None]
    angles = 2 * np.pi * np.arange(length)[:, None] / sizes["l_max"] * np.linspace(1e-4, bands - 1, bands)
    hidden = np.concatenate([times, np.cos(angles), -np.sin(angles)], 1)
    for layer in "12":
        hidden = np.sin(freq * (hidden @ p[f"f{layer}"].T + p[f"g{layer}"]))
    kernels = (hidden @ p["f3"].T * np.exp(-times * p["decay"])).reshape(length, d, order - 1)
    bias = p["fbias"].reshape(d, order - 1)
    for k, gate in enumerate(reversed(gates[1:])):
        x = gate * v
        lags = [x[:, : length - lag] * kernels[lag, :, k] for lag in range(length)]
        v = bias[:, k] * x
        for lag, of_lag in enumerate(lags):
            v = v + np.concatenate([np.zeros_like(x[:, :lag]), of_lag], 1)
    return (gates[0] * v) @ p["wout"].T + p["bout"], None


def hyena_shapes(sizes):
    d, order, emb, hidden = (sizes[name] for name in ["d", "order", "emb", "hidden"])
    stacked, long = (order + 1) * d, (order - 1) * d
    shapes = {"win": (stacked, d), "bin": (stacked,), "conv_w": (stacked, 3), "conv_b": (stacked,)}
    shapes |= {"f1": (hidden, emb), "g1": (hidden,), "f2": (hidden, hidden), "g2": (hidden,), "f3": (long, hidden)}
    return shapes | {"decay": (long,), "fbias": (long,), "wout": (d, d), "bout": (d,)}


def lightning(p, u, sizes):
    """The weights of all pairs: with LRPE, cos(theta (t - s)) in each feature, in the first of `n_layers` layers."""
    heads, length = sizes["heads"], sizes["L"]
    of_heads = lambda x: x.reshape(*u.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    q, k = (of_heads(silu(u @ p[w].T)) for w in ["wq", "wk"])
    v, lags = of_heads(u @ p["wv"].T), np.arange(length)[:, None] - np.arange(length)
    waves = np.cos(p["theta"].reshape(heads, 1, 1, -1) * lags[..., None])
    weights = np.einsum("bhtm,bhsm,htsm->bhts", q, k, waves)
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads) * (1 + 1e-5)
    weights = weights * np.where(lags >= 0, np.exp(-slopes[:, None, None] * lags), 0)
    o = (weights @ v).transpose(0, 2, 1, 3).reshape(u.shape)
    o = o / np.sqrt((o * o).mean(-1, keepdims=True) + 1e-8)
    return ((u @ p["wg"].T) * o) @ p["wout"].T, None


def lightning_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    return {"wq": (n, d), "wk": (n, d), "theta": (n,)} | {name: (d, d) for name in ["wv", "wg", "wout"]}


def delay_system(n, theta):
    """The zero-order hold over one token, by the eigenvalues of the delay system: B' = A^-1 (A' - I) B."""
    i, j = np.arange(n)[:, None], np.arange(n)
    a = (2 * i + 1) / theta * np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    b = (2 * i[:, 0] + 1) * (-1.0) ** i[:, 0] / theta
    rates, vectors = np.linalg.eig(a)
    held = (vectors * np.exp(rates) @ np.linalg.inv(vectors)).real
    return held, np.linalg.solve(a, (held - np.eye(n)) @ b)


def lmu(p, u, sizes):
    a, b = delay_system(sizes["n"], sizes["theta"])
    batch, inputs = u.shape[0], sizes["inputs"]
    m, h = np.zeros((batch, inputs, sizes["n"]), u.dtype), np.zeros((batch, sizes["d"]), u.dtype)
    ys = []
    for t in range(u.shape[1]):
        x = u[:, t] @ p["ex"].T + h @ p["eh"].T + m.reshape(batch, -1) @ p["em"].T
        m = m @ a.T + x[..., None] * b
        h = np.tanh(u[:, t] @ p["ux"].T + h @ p["uh"].T + m.reshape(batch, -1) @ p["um"].T)
        ys.append(h)
    return np.stack(ys, 1), None


def lmu_shapes(sizes):
    d, inputs, memory = sizes["d"], sizes["inputs"], sizes["inputs"] * sizes["n"]
    shapes = {"ex": (inputs, d), "eh": (inputs, d), "em": (inputs, memory)}
    return shapes | {"ux": (d, d), "uh": (d, d), "um": (d, memory)}


def retnet(p, u, sizes):
    """The weights of all pairs, whose channels 2j and 2j + 1 are turned, and a layer norm without weights of each head."""
    heads, length, m = sizes["heads"], sizes["L"], sizes["n"] // sizes["heads"]
    of_heads = lambda x: x.reshape(*u.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    angles = np.arange(length)[:, None] * 10000.0 ** -np.linspace(0, 1, m // 2)
    cos, sin = np.cos(angles), np.sin(angles)

    def turned(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(x.shape)

    q, k = (turned(of_heads(u @ p[w].T)) for w in ["wq", "wk"])
    v, lags = of_heads(u @ p["wv"].T), np.arange(length)[:, None] - np.arange(length)
    gammas = 1 - 2.0 ** (-5 - np.arange(heads))
    decays = np.where(lags >= 0, gammas[:, None, None] ** lags, 0)
    o = (q @ k.transpose(0, 1, 3, 2) * m**-0.5 * decays) @ v
    o = o - o.mean(-1, keepdims=True)
    o = o / np.sqrt((o * o).mean(-1, keepdims=True) + sizes["norm_eps"])
    o = o.transpose(0, 2, 1, 3).reshape(u.shape)
    return (silu(u @ p["wg"].T) * o) @ p["wout"].T, None


def retnet_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    return {"wq": (n, d), "wk": (n, d)} | {name: (d, d) for name in ["wv", "wg", "wout"]}


def taylor(p, u, sizes):
    """Attention with weights T(tau cos(q, k)) in place of exponentials, T the Taylor polynomial of the exponential."""
    heads, length = sizes["heads"], sizes["L"]
    of_heads = lambda w, b: (u @ p[w].T + p[b]).reshape(*u.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)
    q, k, v = unit(of_heads("wq", "bq")), unit(of_heads("wk", "bk")), of_heads("wv", "bv")
    x = np.exp(p["log_tau"])[:, None, None] * (q @ k.transpose(0, 1, 3, 2))
    weights, term = np.ones_like(x), np.ones_like(x)
    for degree in range(1, sizes["order"] + 1):
        term = term * x / degree
        weights = weights + term
    weights = weights * np.tril(np.ones((length, length)))
    o = (weights / weights.sum(-1, keepdims=True)) @ v
    if sizes.get("scaled_output") == "true":
        o = o * np.sqrt(np.arange(1, length + 1) / v.shape[-1])[:, None]
    return o.transpose(0, 2, 1, 3).reshape(u.shape) @ p["wout"].T + p["bout"], None


def taylor_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    shapes = {"wq": (n, d), "wk": (n, d), "wv": (d, d), "wout": (d, d)}
    return shapes | {"bq": (n,), "bk": (n,), "bv": (d,), "bout": (d,), "log_tau": (sizes["heads"],)}


def lru(p, u, sizes):
    """One complex state of N eigenvalues, given by their real and imaginary parts, with or without gamma."""
    re, im = p["lambda_re"], p["lambda_im"]
    gamma = np.exp(p["gamma_log"]) if "gamma_log" in p else 1
    x_re, x_im = gamma * (u @ p["b_re"].T), gamma * (u @ p["b_im"].T)
    h_re, h_im = np.zeros((2, *x_re[:, 0].shape), u.dtype)
    ys = []
    for t in range(u.shape[1]):
        h_re, h_im = re * h_re - im * h_im + x_re[:, t], re * h_im + im * h_re + x_im[:, t]
        ys.append(h_re @ p["c_re"].T - h_im @ p["c_im"].T + p["dskip"] * u[:, t])
    return np.stack(ys, 1), None


def lru_shapes(sizes):
    d, states = sizes["d"], sizes["state"]
    shapes = {"b_re": (states, d), "b_im": (states, d), "c_re": (d, states), "c_im": (d, states), "dskip": (d,)}
    shapes |= {name: (states,) for name in ["lambda_re", "lambda_im"]}
    return shapes | ({"gamma_log": (states,)} if sizes["gamma"] == "true" else {})


def lru_dense(p, u, sizes):
    h, ys = np.zeros((u.shape[0], sizes["state"]), u.dtype), []
    for t in range(u.shape[1]):
        h = h @ p["a"].T + u[:, t] @ p["b"].T
        ys.append(h @ p["c"].T + p["dskip"] * u[:, t])
    return np.stack(ys, 1), None


def lru_dense_shapes(sizes):
    d, states = sizes["d"], sizes["state"]
    return {"a": (states, states), "b": (states, d), "c": (d, states), "dskip": (d,)}


def sinkhorn(p, u, sizes):
    """With a sorting network: the logarithms of the weights of earlier blocks, whose columns and rows are normalised in
    turn, each column by its sum up to the row; then each token's attention by a loop."""
    heads, length, size, m = sizes["heads"], sizes["L"], sizes["block"], sizes["n"] // sizes["heads"]
    of_heads = lambda x: x.reshape(*u.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    q, k, v = (of_heads(u @ p["w" + name].T + p["b" + name]) for name in "qkv")
    relu = lambda x: x * (x.real > 0)
    later = -(-length // size) - 1
    read = np.stack([u[:, : (i + 1) * size + 1].mean(1) for i in range(later)], 1)
    scores = relu(relu(read @ p["wsp"].T + p["bsp"]) @ p["wsb"].T + p["bsb"])
    scores = scores.reshape(*read.shape[:2], heads, -1)[..., :later].transpose(0, 2, 1, 3) / sizes["temperature"]
    weights = np.exp(scores) * np.tril(np.ones((later, later)))
    weights = weights / weights.sum(-1, keepdims=True)
    for _ in range(sizes["rounds"]):
        columns = np.cumsum(weights, 2)
        weights = np.where(columns == 0, 0, weights / np.where(columns == 0, 1, columns))
        weights = weights / weights.sum(-1, keepdims=True)
    o = np.zeros_like(v)
    for t in range(length):
        block, first = t // size, t // size * size
        keys, values = k[:, :, first : t + 1], v[:, :, first : t + 1]
        if block:
            mixed = lambda x: sum(
                weights[:, :, block - 1, j, None, None] * x[:, :, j * size : (j + 1) * size] for j in range(block)
            )
            keys, values = np.concatenate([mixed(k), keys], 2), np.concatenate([mixed(v), values], 2)
        shares = np.exp((keys @ q[:, :, t, :, None])[..., 0] * m**-0.5)
        o[:, :, t] = (shares[..., None] * values).sum(2) / shares.sum(-1, keepdims=True)
    return o.transpose(0, 2, 1, 3).reshape(u.shape) @ p["wout"].T + p["bout"], None


def sinkhorn_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    shapes = {"wq": (n, d), "wk": (n, d), "wv": (d, d), "wout": (d, d), "bq": (n,), "bk": (n,), "bv": (d,), "bout": (d,)}
    scores = sizes["heads"] * sizes["max_blocks"]
    return shapes | {"wsp": (d, d), "bsp": (d,), "wsb": (scores, d), "bsb": (scores,)}


def sinkhorn_both(p, u, sizes):
    """Over whole documents without padding: weights of all blocks, whose columns and rows are normalised in turn; then
    each token's attention by a loop."""
    heads, size, m = sizes["heads"], sizes["block"], sizes["n"] // sizes["heads"]
    kept, network = sizes.get("sortcut", 0), sizes.get("sorting") == "network"
    relu = lambda x: x * (x.real > 0)
    outputs = np.zeros_like(u)
    for b, x in enumerate(u):
        length = len(x)
        count = -(-length // size)
        means = np.stack([x[i * size : (i + 1) * size].mean(0) for i in range(count)])
        of_heads = lambda x: x.reshape(x.shape[0], heads, -1).transpose(1, 0, 2)
        if network:
            scores = relu(relu(means @ p["wsp"].T + p["bsp"]) @ p["wsb"].T + p["bsb"])
            scores = of_heads(scores)[..., :count]
        else:
            scores = of_heads(means @ p["wsq"].T) @ of_heads(means @ p["wsk"].T).transpose(0, 2, 1) * m**-0.5
        weights = np.exp(scores / sizes["temperature"])
        weights = weights / weights.sum(-1, keepdims=True)
        for _ in range(sizes["rounds"]):
            weights = weights / weights.sum(1, keepdims=True)
            weights = weights / weights.sum(2, keepdims=True)
        q, k, v = (of_heads(x @ p["w" + name].T + p["b" + name]) for name in "qkv")

        def mixture(x, h, row):
            rows = np.zeros((min(size, length), x.shape[-1]), x.dtype)
            for j in range(count):
                block = x[h, j * size : (j + 1) * size]
                rows[: len(block)] += weights[h, row, j] * block
            return rows

        o = np.zeros_like(v)
        for h in range(heads):
            for t in range(length):
                block = t // size
                if kept:
                    keys, values = (
                        np.concatenate([mixture(x, h, row) for row in range(min(kept, count))]) for x in (k, v)
                    )
                else:
                    own = slice(block * size, (block + 1) * size)
                    keys, values = (np.concatenate([mixture(x, h, block), x[h, own]]) for x in (k, v))
                shares = np.exp(keys @ q[h, t] * m**-0.5)
                o[h, t] = shares @ values / shares.sum()
        outputs[b] = o.transpose(1, 0, 2).reshape(length, -1) @ p["wout"].T + p["bout"]
    return outputs, None


def sinkhorn_both_shapes(sizes):
    if sizes.get("sorting") == "network":
        return sinkhorn_shapes(sizes)
    d, n = sizes["d"], sizes["n"]
    return spatten_shapes(sizes) | {"wsq": (n, d), "wsk": (n, d)}


def spatten(p, u, sizes):
    """Layer `layer` of `n_layers`, after layers of the same parameters that read the same u. Query by query: the tokens
    that the layer before kept, the most important of which stay; sets and dictionaries of their indices."""
    heads, layers, m = sizes["heads"], sizes["n_layers"], sizes["n"] // sizes["heads"]
    batch, length = u.shape[:2]
    of_heads = lambda x: x.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
    q, k, v = (of_heads(u @ p["w" + name].T + p["b" + name]) for name in "qkv")
    leading, further = (int(x) for x in sizes.get("bits", "0+0").split("+"))

    def read(x, drop):
        if not leading:
            return x
        top = 2 ** (leading + further - 1) - 1
        step = np.abs(x.real).max(-1, keepdims=True) / top
        return np.floor(np.round(x.real / step) / 2**drop) * 2**drop * step

    def share(last, unpruned, layer):
        front = -int(-unpruned * layers // 1)
        return 1 if layer < front else last + (1 - last) * (layers - 1 - layer) / (layers - front)

    def most(scores, ids, count):
        return set(sorted(ids, key=lambda i: (-scores[i], i))[:count])

    shares = lambda x: np.exp(x) / np.exp(x).sum()
    out = np.zeros_like(v)
    for b in range(batch):
        weight_sums, output_sums = np.zeros((layers, length)), np.zeros((layers, heads))
        for i in range(length):
            tokens, used = set(range(i + 1)), set(range(heads))
            for layer in range(sizes["layer"] + 1):
                keep = share(sizes["keep_tokens"], 0.15, layer)
                if keep < 1:
                    scores = weight_sums[:layer].sum(0)
                    scores[i] = np.inf
                    tokens = most(scores, tokens, int(np.ceil(keep * (i + 1))))
                keep = share(sizes["keep_heads"], 0.3, layer)
                if keep < 1:
                    used = most(output_sums[:layer].sum(0), used, int(np.ceil(keep * heads)))
                ids = sorted(tokens)
                out[b, :, i] = 0
                for h in used:
                    by_bits = lambda drop: shares(read(k[b, h, ids], drop) @ read(q[b, h, i], drop) * m**-0.5)
                    weights = by_bits(further)
                    if leading and weights.real.max() < sizes["threshold"]:
                        weights = by_bits(0)
                    weight_sums[layer, ids] += weights.real
                    values = most(weights.real, range(len(ids)), int(np.ceil(sizes["keep_values"] * len(ids))))
                    for j in values:
                        out[b, h, i] += weights[j] * read(v[b, h, ids[j]], 0)
                    output_sums[layer, h] += np.abs(out[b, h, i].real).sum()
    return out.transpose(0, 2, 1, 3).reshape(u.shape) @ p["wout"].T + p["bout"], None


def spatten_shapes(sizes):
    d, n = sizes["d"], sizes["n"]
    return {"wq": (n, d), "wk": (n, d), "wv": (d, d), "wout": (d, d), "bq": (n,), "bk": (n,), "bv": (d,), "bout": (d,)}


def gru(p, u, _sizes):
    """The reset gate acts on the recurrent map after its bias c."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    y, ys = np.zeros_like(u[:, 0]), []
    for t in range(u.shape[1]):
        r, z = (sigmoid(u[:, t] @ p["w" + of].T + y @ p["u" + of].T + p["b" + of]) for of in "rz")
        candidate = np.tanh(u[:, t] @ p["wn"].T + p["bn"] + r * (y @ p["un"].T + p["c"]))
        y = (1 - z) * candidate + z * y
        ys.append(y)
    return np.stack(ys, 1), None


def gru_shapes(sizes):
    d = sizes["d"]
    return {kind + of: (d, d) for kind in "wu" for of in "rzn"} | {name: (d,) for name in ["br", "bz", "bn", "c"]}


BACKWARD = "backward."


def both_directions(forward, shapes):
    """Two passes, the second over the tokens of each document in reverse order; the padding stays after them."""

    def turned(x, lengths):
        return np.stack([np.concatenate([of[:n][::-1], of[n:]]) for of, n in zip(x, lengths)])

    def passes(p, u, sizes):
        own = {of: value for of, value in p.items() if not of.startswith(BACKWARD)}
        other = {of.removeprefix(BACKWARD): value for of, value in p.items() if of.startswith(BACKWARD)}
        lengths = sizes["lengths"]
        return forward(own, u, sizes)[0] + turned(forward(other, turned(u, lengths), sizes)[0], lengths), None

    def both(sizes):
        return {prefix + of: shape for prefix in ["", BACKWARD] for of, shape in shapes(sizes).items()}

    return passes, both


MIXERS = {
    "s6_reference-discretised": (
        *(s6, s6_shapes),
        {"a": A | {"dt_rank": 2}, "b": B | {"dt_rank": 1}, "s": S | {"dt_rank": 1}},
    ),
    "ssd_reference-discretised": (ssd, ssd_shapes, {"a": A, "b": B, "s": S}),
    "ssd_mamba2-discretised": (
        *(ssd_mamba2, ssd_mamba2_shapes),
        {"a": A | {"heads": 1}, "b": B | {"heads": 3}, "s": S | {"heads": 2}},
    ),
    "mamba_block-discretised": (
        *(mamba, mamba_shapes),
        {"a": A | {"expand": 2, "dt_rank": 3}, "b": B | {"expand": 2, "dt_rank": 1}},
    ),
    "mamba2_block-discretised": (
        *(mamba2, mamba2_shapes),
        {"a": A | {"expand": 2, "heads": 4, "groups": 2}, "b": B | {"expand": 2, "heads": 2, "groups": 1}},
    ),
    "s4d_lin_euler": (
        *(s4d, s4d_shapes),
        {"a": {"B": 2, "L": 17, "d": 8, "n": 4}, "b": {"B": 2, "L": 64, "d": 12, "n": 6}},
    ),
    "hyena-ordered": (
        *(hyena, hyena_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 1, "order": 3, "emb": 5, "hidden": 8, "freq": 2.0, "l_max": 17},
            "b": {"B": 2, "L": 30, "d": 6, "n": 1, "order": 4, "emb": 7, "hidden": 10, "freq": 1.5, "l_max": 40},
        },
    ),
    "s4_dplr": (
        *(s4_dplr, s4_dplr_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 4, "start": "legs", "n_ssm": 1, "l_max": 17},
            "b": {"B": 2, "L": 40, "d": 6, "n": 6, "start": "legt", "n_ssm": 3, "l_max": 30},
        },
    ),
    "taylor_attention_reference-unit": (
        *(taylor, taylor_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "order": 2, "unit_qk": "true"},
            "b": {"B": 2, "L": 40, "d": 12, "n": 6, "heads": 3, "order": 4, "unit_qk": "true"},
        },
    ),
    "lru-linear": (
        *(lru, lru_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 1, "state": 6, "eigenvalues": "linear", "gamma": "true"},
            "b": {"B": 2, "L": 40, "d": 12, "n": 1, "state": 10, "eigenvalues": "linear", "gamma": "false"},
        },
    ),
    "lightning_attention-lrpe": (
        *(lightning, lightning_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "n_layers": 2, "layer": 0, "lrpe": "true"},
            "b": {"B": 2, "L": 40, "d": 12, "n": 6, "heads": 3, "n_layers": 4, "layer": 0, "lrpe": "true"},
        },
    ),
    "lmu_recurrent": (
        *(lmu, lmu_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 4, "theta": 6.0, "inputs": 1},
            "b": {"B": 2, "L": 40, "d": 6, "n": 5, "theta": 20.0, "inputs": 3},
        },
    ),
    "retnet_block-group": (
        *(retnet, retnet_shapes),
        {
            case: sizes | {"angles": "retnet", "norm": "group", "norm_eps": 1e-5}
            for case, sizes in [
                ("a", {"B": 2, "L": 17, "d": 8, "n": 8, "heads": 2}),
                ("b", {"B": 2, "L": 40, "d": 12, "n": 18, "heads": 3}),
            ]
        },
    ),
    "lru_dense": (
        *(lru_dense, lru_dense_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 1, "state": 6},
            "b": {"B": 2, "L": 30, "d": 12, "n": 1, "state": 10},
        },
    ),
    "sinkhorn-network": (
        *(sinkhorn, sinkhorn_shapes),
        {
            case: sizes | {"sorting": "network", "temperature": 0.75, "rounds": 5}
            for case, sizes in [
                ("a", {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "block": 4, "max_blocks": 6}),
                ("b", {"B": 2, "L": 24, "d": 12, "n": 6, "heads": 3, "block": 5, "max_blocks": 4}),
            ]
        },
    ),
    "s4d_lin_euler-bidirectional": (
        *both_directions(s4d, s4d_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 8, "n": 4, "lengths": [17, 11]},
            "b": {"B": 3, "L": 20, "d": 4, "n": 6, "lengths": [1, 20, 8]},
        },
    ),
    "gru-bidirectional": (
        *both_directions(gru, gru_shapes),
        {
            "a": {"B": 2, "L": 17, "d": 6, "n": 1, "lengths": [17, 11]},
            "b": {"B": 3, "L": 12, "d": 5, "n": 1, "lengths": [1, 12, 8]},
        },
    ),
    "spatten_cascade": (
        spatten,
        spatten_shapes,
        {
            case: {**sizes, "keep_tokens": 0.4, "keep_heads": 0.5}
            for case, sizes in [
                ("a", {"B": 2, "L": 17, "d": 8, "n": 8, "heads": 4, "n_layers": 3, "layer": 2, "keep_values": 1}),
                ("b", {"B": 2, "L": 14, "d": 6, "n": 6, "heads": 2, "n_layers": 4, "layer": 2, "keep_values": 0.6}),
                (
                    "c",
                    {"B": 2, "L": 15, "d": 8, "n": 4, "heads": 2, "n_layers": 3, "layer": 1, "keep_values": 1}
                    | {"bits": "4+6", "threshold": 0.3},
                ),
            ]
        },
    ),
    "taylor_attention_reference-scaled": (
        *(taylor, taylor_shapes),
        {
            case: {**sizes, "unit_qk": "true", "scaled_output": "true"}
            for case, sizes in [
                ("a", {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 2, "order": 2}),
                ("b", {"B": 2, "L": 24, "d": 6, "n": 3, "heads": 1, "order": 4}),
            ]
        },
    ),
    "sinkhorn-bidirectional": (
        sinkhorn_both,
        sinkhorn_both_shapes,
        {
            case: {**sizes, "rounds": 3, "temperature": 0.75}
            for case, sizes in [
                ("a", {"B": 2, "L": 14, "d": 6, "n": 4, "heads": 2, "block": 4, "lengths": [14, 14]}),
                ("b", {"B": 2, "L": 13, "d": 6, "n": 6, "heads": 1, "block": 5, "sortcut": 2, "lengths": [13, 13]}),
                (
                    "c",
                    {"B": 2, "L": 11, "d": 4, "n": 4, "heads": 2, "block": 3, "sortcut": 1, "lengths": [11, 11]}
                    | {"sorting": "network", "max_blocks": 5},
                ),
            ]
        },
    ),
}


def drawn(generator, shape):
    """Matrices as small as their inputs are many, vectors of order 1, rounded to float32."""
    spread = shape[-1] ** -0.5 if len(shape) > 1 else 0.5
    return (generator.standard_normal(shape) * spread).astype(np.float32)


def gradients(forward, given, w, sizes):
    """Complex-step derivatives of sum(y w) with respect to every element of `given`, which holds u and parameters."""
    given = {name: value.astype(complex) for name, value in given.items()}
    grads = {}
    for name, value in given.items():
        flat, grad = value.reshape(-1), np.zeros(value.size)
        for i in range(value.size):
            flat[i] += 1j * STEP
            y, _ = forward({k: v for k, v in given.items() if k != "u"}, given["u"], sizes)
            grad[i] = (y * w).sum().imag / STEP
            flat[i] = flat[i].real
        grads[name] = grad.reshape(value.shape)
    return grads


def matrices(parts, sizes):
    """The system (11) along one sequence, with component c n + k of the state for state k of channel c."""
    length, width, n = sizes["L"], sizes["d"], sizes["n"]
    value = np.eye(width) if parts.value is None else parts.value
    lam = parts.decay[0].reshape(length, width * n)
    b, c = (np.zeros((length, width * n, width)) for _ in range(2))
    for t in range(length):
        for channel in range(width):
            rows = slice(channel * n, (channel + 1) * n)
            b[t, rows, channel] = parts.write[0, t, channel]
            c[t, rows, channel] = parts.read[0, t, channel]
    b, c = b @ value, parts.out @ c.transpose(0, 2, 1)
    d = np.broadcast_to(parts.out @ np.diag(parts.skip) @ value, (length, width, width))
    phi = np.zeros((length, length, width, width))
    for i in range(length):
        for j in range(i + 1):
            phi[i, j] = (c[i] * lam[j + 1 : i + 1].prod(0)) @ b[j]
        phi[i, i] += d[i]
    return {"lambda": lam, "b": b, "c": c, "d": d, "phi": phi}


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        kind = {np.dtype("float64"): "F64", np.dtype("float32"): "F32"}[tensor.dtype]
        raw = tensor.tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(folder):
    for seed, (name, (forward, shapes, cases)) in enumerate(MIXERS.items()):
        generator = np.random.default_rng(4700 + seed)
        tensors, metadata = {}, {"mixer": name, "schema": "1"}
        for case, sizes in cases.items():
            p = {of: drawn(generator, shape) for of, shape in shapes(sizes).items()}
            for of in [of for of in p if of.removeprefix(BACKWARD) == "log_dt"]:
                p[of] -= 3  # steps so small that no mode of Euler's rule grows far
            for of in sorted({"lambda_re", "lambda_im"} & p.keys()):
                p[of] = (0.7 * np.tanh(p[of])).astype(np.float32)  # inside the unit circle
            shape = (sizes["B"], sizes["L"], sizes["d"])
            u, w = (generator.standard_normal(shape).astype(np.float32) for _ in range(2))
            wide = {of: value.astype(float) for of, value in p.items()}
            y, parts = forward(wide, u.astype(float), sizes)
            tensors |= {f"{case}.p.{of}": value for of, value in p.items()}
            if "lengths" in sizes:
                tensors[f"{case}.lengths"] = np.array(sizes["lengths"], np.float32)
            metadata[case] = json.dumps(sizes)
            if case == "s":
                tensors |= {"s.u": u[0], "s.y": y[0]}
                tensors |= {f"s.dsf.{of}": value for of, value in matrices(parts, sizes).items()}
                continue
            grads = gradients(forward, {"u": u, **p}, w.astype(float), sizes)
            tensors |= {f"{case}.{of}": value for of, value in {"u": u, "w": w, "y": y}.items()}
            tensors |= {f"{case}.loss": (y * w).sum().reshape(1)}
            tensors |= {f"{case}.g.{of}": grad for of, grad in grads.items()}
        write(Path(folder) / f"{name}.safetensors", tensors, metadata)


if __name__ == "__main__":
    main(sys.argv[1])
