"""Makes the golden files of mixers that no other program here checks: GRU and the plain RNN by PyTorch's own modules, sLSTM by a
loop over time without a stabiliser, all in float64. Run `python make.py FOLDER` with any PyTorch 2.

A file holds two cases, `a` and `b`: parameters `p.NAME`, input `u`, output `y`, weights `w` of the loss sum(y * w), and its
gradients `g.u` and `g.NAME`. Inputs and parameters are rounded to float32 first.
"""

import json
import struct
import sys
from pathlib import Path

import torch

CASES = {"a": {"B": 2, "L": 17, "d": 8, "n": 1}, "b": {"B": 2, "L": 64, "d": 16, "n": 1}}


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


def by_module(module, values, u):
    """The outputs of a PyTorch module whose own parameters are replaced by `values`."""
    return torch.func.functional_call(module.double(), values, (u,))[0]


def gru(p, u):
    d = u.shape[-1]
    zero = torch.zeros(2 * d, dtype=torch.float64)
    values = {
        "weight_ih_l0": torch.cat([p["wr"], p["wz"], p["wn"]]),
        "weight_hh_l0": torch.cat([p["ur"], p["uz"], p["un"]]),
        "bias_ih_l0": torch.cat([p["br"], p["bz"], p["bn"]]),
        "bias_hh_l0": torch.cat([zero, p["c"]]),
    }
    return by_module(torch.nn.GRU(d, d, batch_first=True), values, u)


def rnn(p, u):
    d = u.shape[-1]
    values = {
        "weight_ih_l0": p["wh"],
        "weight_hh_l0": p["uh"],
        "bias_ih_l0": p["bh"],
        "bias_hh_l0": torch.zeros(d, dtype=torch.float64),
    }
    return by_module(torch.nn.RNN(d, d, batch_first=True), values, u)


def slstm(p, u):
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


MIXERS = {
    "gru": (gru, "rzn", ("c",)),
    "rnn": (rnn, "h", ()),
    "slstm": (slstm, "zfio", ()),
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
    for seed, (name, (forward, gates, extra)) in enumerate(MIXERS.items()):
        generator = torch.Generator().manual_seed(1000 + seed)
        tensors, metadata = {}, {"mixer": name, "schema": "1"}
        for case, sizes in CASES.items():
            shape = (sizes["B"], sizes["L"], sizes["d"])
            p = parameters(generator, sizes["d"], gates, extra)
            u, w = rounded(generator, *shape), rounded(generator, *shape)
            y = forward(p, u)
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
