"""Makes the golden files of mixers that no other program here checks: GRU and the plain RNN by PyTorch's own modules,
sLSTM and the blocks of xLSTM by loops over time without a stabiliser, the recurrent block of Griffin, Mamba and Mamba-2
with the options of released models by loops over time, softmax attention with shared heads of keys and values by whole
matrices of weights, DeltaNet, Gated DeltaNet, RWKV-7 and S5 by loops over time with whole transition matrices, RWKV-5,
RWKV-6, GateLoop, GSS and LMU by loops over time, SGConv by PyTorch's interpolation and a sum over lags, TTT-Linear by
differentiating the loss of each token, T5's bias, Sinkhorn and SpAtten by loops over queries, all in float64. Run
`python make.py FOLDER` with any PyTorch 2.

A file holds two cases, `a` and `b`: parameters `p.NAME`, input `u`, output `y`, weights `w` of the loss sum(y * w), and its
gradients `g.u` and `g.NAME`. Inputs and parameters are rounded to float32 first.
"""

import json
import math
import struct
import sys
from pathlib import Path

import torch

CASES = {"a": {"B": 2, "L": 17, "d": 8, "n": 1}, "b": {"B": 2, "L": 64, "d": 16, "n": 1}}
HEADED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "lora_rank": 3},
    "b": {"B": 2, "L": 64, "d": 16, "n": 16, "heads": 2, "lora_rank": 3},
}
PAIRED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 1, "state": 5},
    "b": {"B": 2, "L": 64, "d": 16, "n": 1, "state": 8},
}
WIDENED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 3, "expand": 2, "width": 2},
    "b": {"B": 2, "L": 64, "d": 16, "n": 4, "expand": 2, "width": 5},
}
REMEMBERED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "theta": 12, "inputs": 1},
    "b": {"B": 2, "L": 64, "d": 16, "n": 8, "theta": 40, "inputs": 3},
}
PIECED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 1, "taps": 3, "scales": 4, "decay": 0.5},
    "b": {"B": 2, "L": 64, "d": 16, "n": 1, "taps": 4, "scales": 6, "decay": 0.75},
}

BIASED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1},
    "b": {"B": 1, "L": 140, "d": 8, "n": 8, "heads": 2},
}
TRAINED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 1, "heads": 1, "mini_batch": 5},
    "b": {"B": 2, "L": 64, "d": 12, "n": 1, "heads": 2, "mini_batch": 16},
}
SORTED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "block": 5, "rounds": 2},
    "b": {"B": 2, "L": 64, "d": 16, "n": 8, "heads": 2, "block": 8, "rounds": 5},
}
EXPANDED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 16, "heads": 1, "expand": 2},
    "b": {"B": 2, "L": 64, "d": 16, "n": 8, "heads": 2, "expand": 2},
}
GROUPED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 1, "heads": 1},
    "b": {"B": 2, "L": 64, "d": 12, "n": 1, "heads": 3},
}
PRUNED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "keep_tokens": 0.5, "keep_heads": 0.75},
    "b": {"B": 2, "L": 40, "d": 16, "n": 8, "heads": 4, "keep_tokens": 0.3, "keep_heads": 0.5},
}
SHARED = {
    "a": {"B": 2, "L": 17, "d": 10, "n": 12, "heads": 4, "kv_heads": 2, "head_dim": 3, "bias": "none"},
    "b": {"B": 2, "L": 64, "d": 16, "n": 6, "heads": 2, "kv_heads": 1, "bias": "out"},
}
NORMED = {
    "a": {
        **{"B": 2, "L": 17, "d": 8, "n": 4, "expand": 2, "dt_rank": 3, "bcdt_norm": "rms"},
        **{"norm_eps": 1e-3, "bias": "true"},
    },
    "b": {
        **{"B": 2, "L": 70, "d": 12, "n": 6, "expand": 2, "dt_rank": 5, "bcdt_norm": "rms"},
        **{"conv_bias": "false", "conv_width": 3},
    },
}
LIMITED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 2, "expand": 2, "groups": 2, "dt_limit": "0.3:0.9", "bias": "true"},
    "b": {
        **{"B": 2, "L": 70, "d": 16, "n": 5, "heads": 4, "expand": 2, "groups": 2, "norm_groups": 2, "norm_eps": 1e-3},
        **{"dt_limit": "0:1.5", "conv_bias": "false", "conv_width": 3},
    },
}
BLOCKED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 1, "width": 12, "conv_width": 3},
    "b": {"B": 2, "L": 64, "d": 16, "n": 1, "width": 24, "blocks": 3},
}
CAPPED = {
    "a": {"B": 2, "L": 17, "d": 8, "n": 4, "heads": 1, "value_width": 6},
    "b": {
        **{"B": 2, "L": 64, "d": 16, "n": 8, "heads": 2, "value_width": 20, "bias": "true"},
        **{"gate_cap": 2.5, "denominator_eps": 1e-2, "norm_eps": 1e-3},
    },
}


def rounded(generator, *shape, spread=1.0):
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64) * spread
    return drawn.float().double().requires_grad_()


def parameters(generator, d, gates, extra=()):
    of = {}
    for gate in gates:
        of["w" + gate] = rounded(generator, d, d, spread=d**-0.5)
        of["u" + gate] = rounded(generator, d, d, spread=d**-0.5)
        of["b" + gate] = rounded(generator, d, spread=0.3)
    for name in extra:
        of[name] = rounded(generator, d, spread=0.3)
    return of


def of_shapes(generator, shapes):
    """One parameter for each name and shape: matrices as small as their inputs are many, vectors of order 1."""
    spread = lambda shape: shape[-1] ** -0.5 if len(shape) > 1 else 0.5
    return {name: rounded(generator, *shape, spread=spread(shape)) for name, shape in shapes.items()}


def delta_shapes(sizes, gated):
    d, n, heads = sizes["d"], sizes["n"], sizes["heads"]
    width = 2 * n + d
    shapes = {"win": (width, d), "conv_w": (width, 4), "conv_b": (width,), "wb": (heads, d)}
    if gated:
        shapes |= {"wa": (heads, d), "bdt": (heads,), "a_log": (heads,), "wg": (d, d)}
    return shapes | {"norm": (d // heads,), "wout": (d, d)}


def rwkv7_shapes(sizes):
    d, n, rank = sizes["d"], sizes["n"], sizes["lora_rank"]
    shapes = {f"mu_{of}": (d,) for of in "rwkvag"}
    shapes |= {"wr": (n, d), "wk": (n, d), "wv": (d, d), "wout": (d, d)}
    for of, width in {"w": n, "a": n, "g": d}.items():
        shapes |= {f"w{of}1": (rank, d), f"w{of}2": (width, rank)}
    shapes |= {name: (n,) for name in ["bw", "ba", "key_scale", "key_share", "bonus"]}
    return shapes | {"norm": (d,), "bnorm": (d,)}


def by_heads(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1)


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def along_time(transitions, k, v, q):
    """o_t = S_t^T q_t for S_t = transitions_t S_{t-1} + k_t v_t^T, heads in the third axis."""
    state, outputs = torch.zeros_like(k[:, 0, ..., None] * v[:, 0, ..., None, :]), []
    for t in range(k.shape[1]):
        state = transitions[:, t] @ state + k[:, t, ..., None] * v[:, t, ..., None, :]
        outputs.append(torch.einsum("bhme,bhm->bhe", state, q[:, t]))
    return torch.stack(outputs, 1)


def delta_net(p, u, sizes):
    n, heads, length = sizes["n"], sizes["heads"], u.shape[1]
    raw = torch.nn.functional.pad(u @ p["win"].T, (0, 0, 3, 0))
    mixed = sum(raw[:, tap : tap + length] * p["conv_w"][:, tap] for tap in range(4)) + p["conv_b"]
    q, k, v = torch.nn.functional.silu(mixed).split([n, n, u.shape[-1]], -1)
    q, k, v = unit(by_heads(q, heads)), unit(by_heads(k, heads)), by_heads(v, heads)
    beta = torch.sigmoid(u @ p["wb"].T)[..., None]
    keep = torch.eye(n // heads, dtype=torch.float64) - (beta * k)[..., None] * k[..., None, :]
    if "wa" in p:
        alpha = torch.exp(-p["a_log"].exp() * torch.nn.functional.softplus(u @ p["wa"].T + p["bdt"]))
        keep = alpha[..., None, None] * keep
    o = along_time(keep, beta * k, v, q)
    y = (o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * p["norm"]).flatten(2)
    if "wg" in p:
        y = y * torch.nn.functional.silu(u @ p["wg"].T)
    return y @ p["wout"].T


def rwkv7(p, u, sizes):
    heads = sizes["heads"]
    before = token_before(u)
    blend = {of: u + (before - u) * p[f"mu_{of}"] for of in "rwkvag"}
    r, k, v = (blend[of] @ p[f"w{of}"].T for of in "rkv")
    fade = torch.tanh(blend["w"] @ p["ww1"].T) @ p["ww2"].T + p["bw"]
    decay = by_heads(torch.exp(-torch.exp(torch.tensor(-0.5, dtype=torch.float64)) * torch.sigmoid(fade)), heads)
    removal = torch.sigmoid(blend["a"] @ p["wa1"].T @ p["wa2"].T + p["ba"])
    gate = torch.sigmoid(blend["g"] @ p["wg1"].T) @ p["wg2"].T
    along = unit(by_heads(k * p["key_scale"], heads))
    k = k * (1 + (removal - 1) * p["key_share"])
    met = by_heads(r * k * p["bonus"], heads).sum(-1, keepdim=True)
    r, k, v, removal = (by_heads(x, heads) for x in (r, k, v, removal))
    o = along_time(torch.diag_embed(decay) - (removal * along)[..., None] * along[..., None, :], k, v, r)
    centred = o - o.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 64e-5).sqrt()
    y = normed.flatten(2) * p["norm"] + p["bnorm"] + (met * v).flatten(2)
    return (y * gate) @ p["wout"].T


def s5_shapes(sizes):
    d, pairs = sizes["d"], sizes["state"]
    shapes = {name: (pairs,) for name in ["log_dt", "a_re_log", "a_im"]}
    shapes |= {"b_re": (pairs, d), "b_im": (pairs, d), "c_re": (d, pairs), "c_im": (d, pairs)}
    return shapes | {"dskip": (d,)}


def s5(p, u, _sizes):
    a = torch.diag(torch.complex(-p["a_re_log"].exp(), p["a_im"]))
    step = torch.diag(p["log_dt"].exp()).to(a.dtype)
    keep, one = torch.linalg.matrix_exp(step @ a), torch.eye(len(a), dtype=a.dtype)
    put = torch.linalg.solve(a, (keep - one) @ torch.complex(p["b_re"], p["b_im"]))
    read, h, ys = torch.complex(p["c_re"], p["c_im"]), torch.zeros(u.shape[0], len(a), dtype=a.dtype), []
    for t in range(u.shape[1]):
        h = h @ keep.T + u[:, t].to(a.dtype) @ put.T
        ys.append(2 * (h @ read.T).real + p["dskip"] * u[:, t])
    return torch.stack(ys, 1)


def token_before(u):
    return torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], 1)


def rwkv5_shapes(sizes, finch):
    d, n = sizes["d"], sizes["n"]
    shapes = {f"mu_{of}": (d,) for of in "rkvg"}
    shapes |= {"wr": (n, d), "wk": (n, d), "wv": (d, d), "wg": (d, d), "wout": (d, d)}
    shapes |= {"bw": (n,), "bonus": (n,), "norm": (d,), "bnorm": (d,)}
    if finch:
        rank = sizes["lora_rank"]
        shapes |= {"mu_w": (d,), "mu_x": (d,), "blend": (5 * rank, d), "ww1": (rank, d), "ww2": (n, rank)}
        shapes |= {f"blend_{of}": (d, rank) for of in "rkvgw"}
    return shapes


def rwkv5(p, u, sizes):
    heads, before = sizes["heads"], token_before(u)
    blend = {of: u + (before - u) * p[f"mu_{of}"] for of in "rkvg"}
    fade = p["bw"].expand(*u.shape[:2], -1)
    if "blend" in p:
        first = u + (before - u) * p["mu_x"]
        into = dict(zip("rkvgw", p["blend"].chunk(5)))
        share = {of: p[f"mu_{of}"] + torch.tanh(first @ into[of].T) @ p[f"blend_{of}"].T for of in "rkvgw"}
        blend = {of: u + (before - u) * share[of] for of in "rkvgw"}
        fade = p["bw"] + torch.tanh(blend["w"] @ p["ww1"].T) @ p["ww2"].T
    r, k, v = (by_heads(blend[of] @ p[f"w{of}"].T, heads) for of in "rkv")
    w, bonus = by_heads(torch.exp(-torch.exp(fade)), heads), by_heads(p["bonus"], heads)
    state, outputs = torch.zeros_like(k[:, 0, ..., None] * v[:, 0, ..., None, :]), []
    for t in range(u.shape[1]):
        written = k[:, t, ..., None] * v[:, t, ..., None, :]
        outputs.append(torch.einsum("bhme,bhm->bhe", state + bonus[..., None] * written, r[:, t]))
        state = w[:, t, ..., None] * state + written
    o = torch.stack(outputs, 1)
    normed = torch.nn.functional.group_norm(o.flatten(0, 1).flatten(1), heads, p["norm"], p["bnorm"], 64e-5)
    gate = torch.nn.functional.silu(blend["g"] @ p["wg"].T)
    return (normed.reshape(u.shape) * gate) @ p["wout"].T


def gateloop_shapes(sizes):
    d = sizes["d"]
    return {name: (d, d) for name in ["wq", "wk", "wv", "wg", "wa", "wt", "wout"]} | {"ba": (d,), "bt": (d,)}


def gateloop(p, u, _sizes):
    q, k, v, g = (u @ p[f"w{of}"].T for of in "qkvg")
    a = torch.polar(torch.sigmoid(u @ p["wa"].T + p["ba"]), u @ p["wt"].T + p["bt"])
    h, reals = torch.zeros_like(a[:, 0]), []
    for t in range(u.shape[1]):
        h = a[:, t] * h + k[:, t] * v[:, t]
        reals.append(h.real)
    return (q * torch.stack(reals, 1) * torch.nn.functional.silu(g)) @ p["wout"].T


def gss_shapes(sizes):
    d, pairs, width, inner = sizes["d"], sizes["n"], sizes["width"], sizes["expand"] * sizes["d"]
    shapes = {"wx": (width, d), "wv": (inner, d), "wy": (inner, width), "wout": (d, inner), "log_dt": (width,)}
    return shapes | {name: (width, pairs) for name in ["a_re_log", "a_im", "c_re", "c_im"]} | {"dskip": (width,)}


def gss(p, u, _sizes):
    x = torch.nn.functional.gelu(u @ p["wx"].T)
    a, step = torch.complex(-p["a_re_log"].exp(), p["a_im"]), p["log_dt"].exp()[:, None]
    keep = torch.exp(step * a)
    put, read = (keep - 1) / a, torch.complex(p["c_re"], p["c_im"])
    h, ys = torch.zeros(u.shape[0], *a.shape, dtype=a.dtype), []
    for t in range(u.shape[1]):
        h = keep * h + put * x[:, t, :, None]
        ys.append(2 * (read * h).sum(-1).real + p["dskip"] * x[:, t])
    gate = torch.nn.functional.gelu(u @ p["wv"].T)
    return ((torch.stack(ys, 1) @ p["wy"].T) * gate) @ p["wout"].T


def lmu_shapes(sizes):
    d, n, inputs = sizes["d"], sizes["n"], sizes["inputs"]
    return {"wu": (inputs, d), "bu": (inputs,), "wm": (d, inputs * n), "wx": (d, d), "bout": (d,)}


def lmu(p, u, sizes):
    n, theta = sizes["n"], sizes["theta"]
    a = [[(2 * i + 1) / theta * (-1 if i < j else (-1) ** (i - j + 1)) for j in range(n)] for i in range(n)]
    a = torch.tensor(a, dtype=torch.float64)
    b = torch.tensor([(2 * i + 1) * (-1) ** i / theta for i in range(n)], dtype=torch.float64)
    keep = torch.linalg.matrix_exp(a)
    put = torch.linalg.solve(a, (keep - torch.eye(n, dtype=torch.float64)) @ b)
    x = u @ p["wu"].T + p["bu"]
    m, ys = torch.zeros(u.shape[0], sizes["inputs"], n, dtype=torch.float64), []
    for t in range(u.shape[1]):
        m = m @ keep.T + x[:, t, :, None] * put
        ys.append(torch.tanh(m.flatten(1) @ p["wm"].T + u[:, t] @ p["wx"].T + p["bout"]))
    return torch.stack(ys, 1)


def sgconv_shapes(sizes):
    return {"pieces": (sizes["d"], sizes["scales"] * sizes["taps"]), "dskip": (sizes["d"],)}


def sgconv(p, u, sizes):
    parts = []
    for scale, piece in enumerate(p["pieces"].split(sizes["taps"], 1)):
        longer = sizes["taps"] * 2 ** max(scale - 1, 0)
        stretched = torch.nn.functional.interpolate(piece[None], size=longer, mode="linear", align_corners=False)[0]
        parts.append(sizes["decay"] ** scale * stretched)
    kernel = torch.cat(parts, 1)
    at = lambda t: sum(kernel[:, lag] * u[:, t - lag] for lag in range(t + 1))
    return torch.stack([at(t) + p["dskip"] * u[:, t] for t in range(u.shape[1])], 1)


def attention_shapes(sizes, **more):
    d, n = sizes["d"], sizes["n"]
    shapes = {"wq": (n, d), "wk": (n, d), "wv": (d, d), "bq": (n,), "bk": (n,), "bv": (d,), "wout": (d, d), "bout": (d,)}
    return shapes | more


def queries_keys_values(p, u, heads):
    """(batch, heads, length, width) each."""
    return [by_heads(u @ p["w" + of].T + p["b" + of], heads).transpose(1, 2) for of in "qkv"]


def output(p, o):
    """o (batch, heads, length, width)."""
    return o.transpose(1, 2).flatten(2) @ p["wout"].T + p["bout"]


def t5_shapes(sizes):
    return attention_shapes(sizes, bias=(32, sizes["heads"]))


def t5_bias(p, u, sizes):
    q, k, v = queries_keys_values(p, u, sizes["heads"])
    length = u.shape[1]
    distance = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
    share = torch.log(distance.clamp(min=1) / 16) / torch.log(torch.tensor(128 / 16))
    bucket = torch.where(distance < 16, distance, (16 + (share * 16).long()).clamp(max=31))
    scores = q @ k.mT * q.shape[-1] ** -0.5 + p["bias"][bucket].permute(2, 0, 1)
    future = torch.ones(length, length).triu(1).bool()
    return output(p, scores.masked_fill(future, -torch.inf).softmax(-1) @ v)


def ttt_shapes(sizes):
    d, heads = sizes["d"], sizes["heads"]
    e = d // heads
    shapes = {"wq": (d, d), "wk": (d, d), "wv": (d, d), "wlr": (heads, d), "blr": (heads,), "steps": (sizes["mini_batch"],)}
    shapes |= {"inner": (heads, e, e)} | {name: (d,) for name in ["binner", "norm", "bnorm", "post", "bpost"]}
    return shapes | {"wout": (d, d)}


def rotated(x, at):
    half = x.shape[-1] // 2
    angle = at * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()]
    return torch.cat([*turned, x[..., 2 * half :]], -1)


def ttt_linear(p, u, sizes):
    heads, size, norm = sizes["heads"], sizes["mini_batch"], torch.nn.functional.layer_norm
    e = u.shape[-1] // heads
    q, k, v = (by_heads(u @ p["w" + of].T, heads) for of in "qkv")
    rate = torch.sigmoid(u @ p["wlr"].T + p["blr"])[..., None] / e
    gamma, beta, bias = (by_heads(p[name], heads) for name in ["norm", "bnorm", "binner"])
    model = lambda x, w, b: x + norm(torch.einsum("bhm,bhme->bhe", x, w) + b, (e,), eps=1e-6) * gamma + beta
    w, b = p["inner"].expand(u.shape[0], -1, -1, -1), bias.expand(u.shape[0], -1, -1)
    outputs = []
    for t in range(u.shape[1]):
        at = t % size
        if at == 0:
            start, sums = (w, b), (0, 0)
        key = rotated(k[:, t], at)
        loss = (rate[:, t] * (model(key, *start) - v[:, t]).square()).sum() / 2
        sums = [x + g for x, g in zip(sums, torch.autograd.grad(loss, start, create_graph=True))]
        step = torch.relu(1 / (at + 1) + p["steps"][at])
        w, b = (x - step * g for x, g in zip(start, sums))
        outputs.append(model(rotated(q[:, t], at), w, b).flatten(1))
    return norm(torch.stack(outputs, 1), u.shape[-1:], p["post"], p["bpost"], 1e-6) @ p["wout"].T


def sinkhorn_shapes(sizes):
    return attention_shapes(sizes, wsq=(sizes["n"], sizes["d"]), wsk=(sizes["n"], sizes["d"]))


def sinkhorn(p, u, sizes):
    heads, size, scale = sizes["heads"], sizes["block"], (sizes["n"] // sizes["heads"]) ** -0.5
    q, k, v = queries_keys_values(p, u, heads)
    asked = [by_heads(u[:, : at + 1].mean(1) @ p["wsq"].T, heads) for at in range(size, u.shape[1], size)]
    offered = [by_heads(u[:, at - size : at].mean(1) @ p["wsk"].T, heads) for at in range(size, u.shape[1], size)]
    order = {(i, j): torch.exp((asked[i] * offered[j]).sum(-1) * scale) for i in range(len(asked)) for j in range(i + 1)}
    by_row = lambda order: {(i, j): x / sum(order[i, c] for c in range(i + 1)) for (i, j), x in order.items()}
    order = by_row(order)
    for _ in range(sizes["rounds"]):
        order = by_row({(i, j): x / sum(order[r, j] for r in range(j, i + 1)) for (i, j), x in order.items()})
    outputs = []
    for t in range(u.shape[1]):
        block = t // size
        mixed = lambda x: sum(order[block - 1, j][..., None, None] * x[:, :, j * size : (j + 1) * size] for j in range(block))
        own = lambda x: x[:, :, block * size : t + 1]
        seen = lambda x: torch.cat([mixed(x), own(x)], 2) if block > 0 else own(x)
        outputs.append((q[:, :, t : t + 1] @ seen(k).mT * scale).softmax(-1) @ seen(v))
    return output(p, torch.cat(outputs, 2))


def spatten(p, u, sizes):
    heads = sizes["heads"]
    q, k, v = queries_keys_values(p, u, heads)
    sequences = []
    for b in range(u.shape[0]):
        kept, importance, of_heads, outputs = [], {}, torch.zeros(heads, dtype=torch.float64), []
        for t in range(u.shape[1]):
            kept.append(t)
            importance[t] = 0.0
            weights = (q[b, :, t : t + 1] @ k[b][:, kept].mT * q.shape[-1] ** -0.5).softmax(-1)
            o = (weights @ v[b][:, kept])[:, 0]
            for token, weight in zip(kept, weights[:, 0].sum(0).tolist()):
                importance[token] += weight
            count = math.ceil(sizes["keep_tokens"] * (t + 1))
            kept = sorted(sorted(kept, key=lambda token: -importance[token])[:count])
            of_heads = of_heads + o.detach().abs().sum(-1)
            used = of_heads.argsort(descending=True)[: math.ceil(sizes["keep_heads"] * heads)]
            outputs.append(torch.zeros(heads, 1, dtype=torch.float64).index_fill(0, used, 1.0) * o)
        sequences.append(torch.stack(outputs, 1))
    return output(p, torch.stack(sequences))


def by_module(module, values, u):
    """The outputs of a PyTorch module whose own parameters are replaced by `values`."""
    return torch.func.functional_call(module.double(), values, (u,))[0]


def gru(p, u, _sizes):
    d = u.shape[-1]
    zero = torch.zeros(2 * d, dtype=torch.float64)
    values = {
        "weight_ih_l0": torch.cat([p["wr"], p["wz"], p["wn"]]),
        "weight_hh_l0": torch.cat([p["ur"], p["uz"], p["un"]]),
        "bias_ih_l0": torch.cat([p["br"], p["bz"], p["bn"]]),
        "bias_hh_l0": torch.cat([zero, p["c"]]),
    }
    return by_module(torch.nn.GRU(d, d, batch_first=True), values, u)


def rnn(p, u, _sizes):
    d = u.shape[-1]
    values = {
        "weight_ih_l0": p["wh"],
        "weight_hh_l0": p["uh"],
        "bias_ih_l0": p["bh"],
        "bias_hh_l0": torch.zeros(d, dtype=torch.float64),
    }
    return by_module(torch.nn.RNN(d, d, batch_first=True), values, u)


def slstm(p, u, _sizes):
    batch, length, d = u.shape
    y = c = n = torch.zeros(batch, d, dtype=torch.float64)
    ys = []
    for t in range(length):
        gate = lambda g: u[:, t] @ p["w" + g].T + y @ p["u" + g].T + p["b" + g]
        z, f, i, o = torch.tanh(gate("z")), torch.sigmoid(gate("f")), torch.exp(gate("i")), torch.sigmoid(gate("o"))
        c, n = f * c + i * z, f * n + i
        y = o * c / n
        ys.append(y)
    return torch.stack(ys, 1)


def short_conv(p, x):
    """Short convolution of x, by PyTorch's own."""
    padded = torch.nn.functional.pad(x.transpose(1, 2), (p["conv_w"].shape[1] - 1, 0))
    conv = torch.nn.functional.conv1d(padded, p["conv_w"][:, None], p.get("conv_b"), groups=x.shape[-1])
    return conv.transpose(1, 2)


def causal(p, x):
    """SiLU of the short convolution of x."""
    return torch.nn.functional.silu(short_conv(p, x))


def by_blocks(w, x):
    """Block-diagonal map whose blocks' rows are those of w."""
    blocks = x.shape[-1] // w.shape[1]
    parts = x.unflatten(-1, (blocks, -1))
    return torch.einsum("blki,koi->blko", parts, w.unflatten(0, (blocks, -1))).flatten(2)


def normed(weight, o, heads):
    """Group norm of o, one group a head."""
    return torch.nn.functional.group_norm(o.flatten(0, 1), heads, weight, eps=1e-5).reshape(o.shape)


def mlstm_block(p, u, sizes):
    heads, width, n = sizes["heads"], u.shape[-1] * sizes["expand"], sizes["n"]
    x, z = (u @ p["win"].T).split(width, -1)
    a = causal(p, x)
    q, k, v = by_blocks(p["wq"], a), by_blocks(p["wk"], a), by_blocks(p["wv"], x)
    read = torch.cat([q, k, v], -1)
    i, f = torch.exp(read @ p["wi"].T + p["bi"]), torch.sigmoid(read @ p["wf"].T + p["bf"])
    q, k, v = by_heads(q, heads), by_heads(k, heads) * (n // heads) ** -0.5, by_heads(v, heads)
    memory = torch.zeros(u.shape[0], heads, n // heads, width // heads, dtype=torch.float64)
    normaliser, hs = memory[..., 0], []
    for t in range(u.shape[1]):
        keep, new = f[:, t, :, None, None], i[:, t, :, None, None]
        memory = keep * memory + new * k[:, t, ..., None] * v[:, t, ..., None, :]
        normaliser = keep[..., 0] * normaliser + new[..., 0] * k[:, t]
        below = (normaliser * q[:, t]).sum(-1, keepdim=True).abs().clamp(min=1)
        hs.append((torch.einsum("bhme,bhm->bhe", memory, q[:, t]) / below).flatten(1))
    h = normed(p["norm"], torch.stack(hs, 1), heads)
    return ((h + p["skip"] * a) * torch.nn.functional.silu(z)) @ p["wout"].T


def mlstm_block_shapes(sizes):
    d, n, heads, width = sizes["d"], sizes["n"], sizes["heads"], sizes["d"] * sizes["expand"]
    shapes = {"win": (2 * width, d), "conv_w": (width, 4), "conv_b": (width,), "wq": (n, 4), "wk": (n, 4), "wv": (width, 4)}
    shapes |= {name: (heads, 2 * n + width) for name in ["wi", "wf"]} | {name: (heads,) for name in ["bi", "bf"]}
    return shapes | {"norm": (width,), "skip": (width,), "wout": (d, width)}


def slstm_block(p, u, sizes):
    heads, shifted = sizes["heads"], causal(p, u)
    fed = {gate: by_blocks(p["w" + gate], shifted if gate in "fi" else u) + p["b" + gate] for gate in "zfio"}
    h = c = n = torch.zeros_like(u[:, 0])
    hs = []
    for t in range(u.shape[1]):
        z, f, i, o = (fed[gate][:, t] + by_blocks(p["u" + gate], h[:, None])[:, 0] for gate in "zfio")
        f, i = torch.sigmoid(f), torch.exp(i)
        c, n = f * c + i * torch.tanh(z), f * n + i
        h = torch.sigmoid(o) * c / n
        hs.append(h)
    return normed(p["norm"], torch.stack(hs, 1), heads)


def slstm_block_shapes(sizes):
    d, head = sizes["d"], sizes["d"] // sizes["heads"]
    shapes = {kind + gate: (d, head) for kind in "wu" for gate in "zfio"} | {"b" + gate: (d,) for gate in "zfio"}
    return shapes | {"conv_w": (d, 4), "conv_b": (d,), "norm": (d,)}


def affine(p, x, name):
    """Linear map of x by p["w" + name], with a bias p["b" + name] where there is one."""
    return torch.nn.functional.linear(x, p["w" + name], p.get("b" + name))


def rms(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def mamba_shapes(sizes):
    d, n, width, rank = sizes["d"], sizes["n"], sizes["d"] * sizes["expand"], sizes["dt_rank"]
    shapes = {"win": (2 * width, d), "conv_w": (width, sizes.get("conv_width", 4)), "wu": (rank, width)}
    shapes |= {"wdt": (width, rank), "bdt": (width,), "wb": (n, width), "wc": (n, width), "a_log": (width, n)}
    shapes |= {"dskip": (width,), "wout": (d, width)}
    return shapes | optional_shapes(sizes, 2 * width, width, d)


def optional_shapes(sizes, rows, convolved, d):
    """Biases by the options of both Mambas."""
    shapes = {"bin": (rows,), "bout": (d,)} if sizes.get("bias") == "true" else {}
    return shapes if sizes.get("conv_bias") == "false" else shapes | {"conv_b": (convolved,)}


def mamba(p, u, sizes):
    x, z = affine(p, u, "in").chunk(2, -1)
    x, eps = causal(p, x), sizes.get("norm_eps", 1e-6)
    low, b, c = (rms(affine(p, x, name), eps) for name in "ubc")
    delta = torch.nn.functional.softplus(affine(p, low, "dt"))
    state, ys = torch.zeros(*x[:, 0].shape, sizes["n"], dtype=torch.float64), []
    for t in range(u.shape[1]):
        keep = torch.exp(-delta[:, t, :, None] * p["a_log"].exp())
        state = keep * state + (delta[:, t] * x[:, t])[..., None] * b[:, t, None]
        ys.append((state * c[:, t, None]).sum(-1) + p["dskip"] * x[:, t])
    return affine(p, torch.stack(ys, 1) * torch.nn.functional.silu(z), "out")


def mamba2_shapes(sizes):
    d, heads, width = sizes["d"], sizes["heads"], sizes["d"] * sizes["expand"]
    mixed = width + 2 * sizes["groups"] * sizes["n"]
    shapes = {"win": (width + mixed + heads, d), "conv_w": (mixed, sizes.get("conv_width", 4)), "norm": (width,)}
    shapes |= {"wout": (d, width)} | {name: (heads,) for name in ["bdt", "a_log", "dskip"]}
    return shapes | optional_shapes(sizes, width + mixed + heads, mixed, d)


def mamba2(p, u, sizes):
    n, heads, groups, width = sizes["n"], sizes["heads"], sizes["groups"], u.shape[-1] * sizes["expand"]
    low, high = (float(bound) for bound in sizes["dt_limit"].split(":"))
    z, mixed, dt = affine(p, u, "in").split([width, width + 2 * groups * n, heads], -1)
    x, b, c = causal(p, mixed).split([width, groups * n, groups * n], -1)
    x = by_heads(x, heads)
    b, c = (by_heads(of, groups).repeat_interleave(heads // groups, 2) for of in [b, c])
    delta = torch.nn.functional.softplus(dt + p["bdt"]).clamp(low, high)
    state, ys = torch.zeros(*x[:, 0].shape, n, dtype=torch.float64), []
    for t in range(u.shape[1]):
        keep = torch.exp(-delta[:, t] * p["a_log"].exp())[..., None, None]
        state = keep * state + (delta[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        ys.append((state * c[:, t, :, None]).sum(-1) + p["dskip"][:, None] * x[:, t])
    gated = torch.stack(ys, 1).flatten(2) * torch.nn.functional.silu(z)
    parts = rms(by_heads(gated, sizes.get("norm_groups", 1)), sizes.get("norm_eps", 1e-5))
    return affine(p, parts.flatten(2) * p["norm"], "out")


def griffin_shapes(sizes):
    d, width = sizes["d"], sizes["width"]
    shapes = {"wx": (width, d), "wy": (width, d), "wgates": (2 * width, width // sizes.get("blocks", 1))}
    shapes |= {"wout": (d, width)} | {name: (width,) for name in ["bx", "by", "conv_b", "lam"]} | {"bgates": (2 * width,), "bout": (d,)}
    return shapes | {"conv_w": (width, sizes.get("conv_width", 4))}


def griffin(p, u, sizes):
    x, width = short_conv(p, affine(p, u, "x")), sizes["width"]
    gates = [torch.sigmoid(by_blocks(w, x) + b) for w, b in zip(p["wgates"].split(width), p["bgates"].split(width))]
    a = torch.exp(-8 * torch.nn.functional.softplus(p["lam"]) * gates[0])
    h, hs = gates[1][:, 0] * x[:, 0], []
    for t in range(u.shape[1]):
        if t > 0:
            h = a[:, t] * h + (1 - a[:, t].square()).sqrt() * gates[1][:, t] * x[:, t]
        hs.append(h)
    return affine(p, torch.stack(hs, 1) * torch.nn.functional.gelu(affine(p, u, "y"), approximate="tanh"), "out")


def mlstm_large_shapes(sizes):
    d, n, heads, width = sizes["d"], sizes["n"], sizes["heads"], sizes["value_width"]
    shapes = {"wq": (n, d), "wk": (n, d), "wv": (width, d), "wo": (width, d), "wout": (d, width), "norm": (width,)}
    shapes |= {"wi": (heads, d), "wf": (heads, d), "bi": (heads,), "bf": (heads,)}
    biases = {"bq": (n,), "bk": (n,), "bv": (width,), "bo": (width,), "bout": (d,), "bnorm": (width,)}
    return shapes | biases if sizes.get("bias") == "true" else shapes


def mlstm_large(p, u, sizes):
    heads, cap = sizes["heads"], sizes.get("gate_cap", 15)
    q, k, v = (by_heads(affine(p, u, name), heads) for name in "qkv")
    q = q * q.shape[-1] ** -0.5
    log_i, f = (cap * torch.tanh(affine(p, u, name) / cap) for name in "if")
    log_f = torch.nn.functional.logsigmoid(f)
    memory, normaliser = torch.zeros_like(k[:, 0, ..., None] * v[:, 0, ..., None, :]), torch.zeros_like(k[:, 0])
    m, hs = 0, []
    for t in range(u.shape[1]):
        keep, new = log_f[:, t, :, None].exp(), log_i[:, t, :, None].exp()
        memory = keep[..., None] * memory + new[..., None] * k[:, t, ..., None] * v[:, t, ..., None, :]
        normaliser, m = keep * normaliser + new * k[:, t], torch.maximum(log_f[:, t] + m, log_i[:, t])
        below = (normaliser * q[:, t]).sum(-1).abs().clamp(min=1) + sizes.get("denominator_eps", 1e-6) * m.exp()
        hs.append(torch.einsum("bhme,bhm->bhe", memory, q[:, t]) / below[..., None])
    h = torch.stack(hs, 1)
    h = torch.nn.functional.layer_norm(h, h.shape[-1:], eps=sizes.get("norm_eps", 1e-6)).flatten(2) * p["norm"]
    h = h + p["bnorm"] if "bnorm" in p else h
    return affine(p, torch.sigmoid(affine(p, u, "o")) * h, "out")


def shared_shapes(sizes):
    d, n, heads, shared = sizes["d"], sizes["n"], sizes["heads"], sizes["kv_heads"]
    width = heads * sizes["head_dim"] if "head_dim" in sizes else d
    shapes = {"wq": (n, d), "wk": (n // heads * shared, d), "wv": (width // heads * shared, d), "wout": (d, width)}
    return shapes | {"bout": (d,)} if sizes["bias"] == "out" else shapes


def shared_attention(p, u, sizes):
    heads, shared = sizes["heads"], sizes["kv_heads"]
    q = by_heads(affine(p, u, "q"), heads)
    k, v = (by_heads(affine(p, u, name), shared).repeat_interleave(heads // shared, 2) for name in "kv")
    scores = torch.einsum("bihm,bjhm->bhij", q, k) * q.shape[-1] ** -0.5
    later = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, float("-inf")).softmax(-1)
    return affine(p, torch.einsum("bhij,bjhe->bihe", weights, v).flatten(2), "out")


def gates(names, extra=()):
    return lambda generator, sizes: parameters(generator, sizes["d"], names, extra)


def shapes(of, *more):
    return lambda generator, sizes: of_shapes(generator, of(sizes, *more))


MIXERS = {
    "gru": (gru, gates("rzn", ("c",)), CASES),
    "rnn": (rnn, gates("h"), CASES),
    "slstm": (slstm, gates("zfio"), CASES),
    "delta_net": (delta_net, shapes(delta_shapes, False), HEADED),
    "gated_delta_net": (delta_net, shapes(delta_shapes, True), HEADED),
    "rwkv7": (rwkv7, shapes(rwkv7_shapes), HEADED),
    "s5": (s5, shapes(s5_shapes), PAIRED),
    "gateloop": (gateloop, shapes(gateloop_shapes), CASES),
    "rwkv5": (rwkv5, shapes(rwkv5_shapes, False), HEADED),
    "rwkv6": (rwkv5, shapes(rwkv5_shapes, True), HEADED),
    "sgconv": (sgconv, shapes(sgconv_shapes), PIECED),
    "gss": (gss, shapes(gss_shapes), WIDENED),
    "lmu": (lmu, shapes(lmu_shapes), REMEMBERED),
    "t5_bias": (t5_bias, shapes(t5_shapes), BIASED),
    "ttt_linear": (ttt_linear, shapes(ttt_shapes), TRAINED),
    "sinkhorn": (sinkhorn, shapes(sinkhorn_shapes), SORTED),
    "spatten": (spatten, shapes(attention_shapes), PRUNED),
    "mlstm_block": (mlstm_block, shapes(mlstm_block_shapes), EXPANDED),
    "slstm_block": (slstm_block, shapes(slstm_block_shapes), GROUPED),
    "rg_lru_griffin": (griffin, shapes(griffin_shapes), BLOCKED),
    "mlstm_large": (mlstm_large, shapes(mlstm_large_shapes), CAPPED),
    "mamba_block-normed": (mamba, shapes(mamba_shapes), NORMED),
    "mamba2_block-grouped": (mamba2, shapes(mamba2_shapes), LIMITED),
    "softmax_attention_reference-shared": (shared_attention, shapes(shared_shapes), SHARED),
}


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        kind = "F64" if tensor.dtype == torch.float64 else "F32"
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(folder):
    for seed, (name, (forward, build, cases)) in enumerate(MIXERS.items()):
        generator = torch.Generator().manual_seed(1000 + seed)
        tensors, metadata = {}, {"mixer": name, "schema": "1"}
        for case, sizes in cases.items():
            shape = (sizes["B"], sizes["L"], sizes["d"])
            p = build(generator, sizes)
            u, w = rounded(generator, *shape), rounded(generator, *shape)
            y = forward(p, u, sizes)
            loss = (y * w).sum()
            names = ["u", *p]
            grads = torch.autograd.grad(loss, [u, *p.values()])
            tensors.update({f"{case}.{k}": v.float() for k, v in {"u": u, "w": w}.items()})
            tensors.update({f"{case}.p.{k}": v.float() for k, v in p.items()})
            tensors.update({f"{case}.y": y, f"{case}.loss": loss.reshape(1)})
            tensors.update({f"{case}.g.{k}": g for k, g in zip(names, grads)})
            metadata[case] = json.dumps(sizes)
        write(Path(folder) / f"{name}.safetensors", tensors, metadata)


if __name__ == "__main__":
    main(sys.argv[1])
