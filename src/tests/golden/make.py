"""Makes the golden files of mixers that no other program here checks: GRU and the plain RNN by PyTorch's own modules, sLSTM by a
loop over time without a stabiliser, DeltaNet, Gated DeltaNet, RWKV-7 and S5 by loops over time with whole transition matrices, all in
float64. Run `python make.py FOLDER` with any PyTorch 2.

A file holds two cases, `a` and `b`: parameters `p.NAME`, input `u`, output `y`, weights `w` of the loss sum(y * w), and its
gradients `g.u` and `g.NAME`. Inputs and parameters are rounded to float32 first.
"""

import json
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
    before = torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], 1)
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
