#!/usr/bin/env python3
"""One training step of the reference protocol in plain PyTorch, to be timed beside `dsf bench step`.

Weights and batches come from the file that `dsf bench step --export` writes, so that the losses can be
compared before the times. Token embedding (tied to the head), learnt positions where the file has
them, embedding dropout, pre-norm blocks, final norm, mean cross entropy over the labelled positions,
AdamW with decay on every parameter.

    dsf bench step --mixer s6 --dropout 0 --export step.safetensors
    python step.py --mixer s6 --load step.safetensors --head labelled --form compiled

`--head all` makes logits at every position, as the released code does; `labelled` only where there is
a label. `--form` is the scan of s6 (see scan.py) or that of qlstm: `loop`, or `tree`, a parallel scan.
"""
import argparse
import math

import scan
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """softmax, linear or normalized: o_i = sum over j <= i of weight_ij v_j."""

    def __init__(self, given, kind, dropout):
        super().__init__()
        self.qk = linear(torch.cat([given["wq"], given["wk"]]), torch.cat([given["bq"], given["bk"]]))
        self.v, self.out = linear(given["wv"], given["bv"]), linear(given["wout"], given["bout"])
        self.eta = linear(given["wn"], given["bn"]) if kind == "normalized" else None
        self.kind, self.dropout = kind, dropout

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        if self.kind == "softmax":
            scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -1e4)
            weights = torch.softmax(scores, -1)
        elif self.kind == "linear":
            scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).masked_fill(future, 0)
            weights = scores / scores.sum(-1, keepdim=True)
        else:
            weights = (q @ k.mT).masked_fill(future, 0) / torch.exp(self.eta(x))
        return self.out(F.dropout(weights, self.dropout, self.training) @ self.v(x))


class S6(nn.Module):
    """Selective state space: a decay for every channel and state."""

    def __init__(self, given, form):
        super().__init__()
        self.u, self.dt = linear(given["wu"]), linear(given["wdt"], given["bdt"])
        self.bc = linear(torch.cat([given["wb"], given["wc"]]))
        self.a_log, self.skip = nn.Parameter(given["a_log"]), nn.Parameter(given["dskip"])
        self.out, self.form = linear(given["wout"]), scan.FORMS[form]

    def forward(self, x):
        delta = F.softplus(self.dt(self.u(x)))
        b, c = self.bc(x).chunk(2, -1)
        y = self.form(x, delta, -torch.exp(self.a_log), b, c)
        return self.out(y + self.skip * x)


class Ssd(nn.Module):
    """The released SSD, one decay per channel, as matrix products: with P the running sum of the decays'
    logarithms in a chunk, y_t = e^{P_t} sum over s <= t of (c_t . b_s) e^{-P_s} delta_s u_s."""

    def __init__(self, given, chunk=16):
        super().__init__()
        self.ubc = linear(torch.cat([given["wu"], given["wb"], given["wc"]]))
        self.bias, self.a_log = nn.Parameter(given["bdt"]), nn.Parameter(given["a_log"])
        self.skip, self.out = nn.Parameter(given["dskip"]), linear(given["wout"])
        self.n, self.chunk = len(given["wb"]), chunk

    def forward(self, x):
        batch, length, d = x.shape
        step, b, c = self.ubc(x).split([1, self.n, self.n], -1)
        delta = F.softplus(step + self.bias)
        pieces = lambda z: z.view(batch, length // self.chunk, self.chunk, -1)
        log = pieces(-torch.exp(self.a_log) * delta).cumsum(2)
        v, b, c = pieces(delta * x), pieces(b), pieces(c)
        middle = log[:, :, self.chunk // 2, None]  # keeps both exponentials near one
        inside = (c @ b.mT).tril() @ (torch.exp((middle - log).clamp(max=60)) * v)
        inside = torch.exp(log - middle) * inside
        added = b.mT @ (torch.exp(log[:, :, -1:] - log) * v)
        h, before = x.new_zeros(batch, self.n, d), []
        for decay, new in zip(torch.exp(log[:, :, -1:]).unbind(1), added.unbind(1)):
            before.append(h)
            h = decay * h + new
        y = inside + torch.exp(log) * (c @ torch.stack(before, 1))
        return self.out(y.view(batch, length, d) + self.skip * x)


class Qlstm(nn.Module):
    """h_t = forget * h_{t-1} + input * x_t after a short convolution, gated on the way out."""

    def __init__(self, given, form):
        super().__init__()
        self.inner, self.gates = linear(given["win"]), linear(given["wgates"], given["bgates"])
        width, taps = given["conv_w"].shape
        self.conv = nn.Conv1d(width, width, taps, groups=width, padding=taps - 1)
        self.conv.weight = nn.Parameter(given["conv_w"].unsqueeze(1))
        self.conv.bias = nn.Parameter(given["conv_b"])
        self.out, self.form = linear(given["wout"]), form

    def forward(self, x):
        gate, v = self.inner(x).chunk(2, -1)
        v = self.conv(v.mT)[..., : x.shape[1]].mT
        forget, use, out = self.gates(v).sigmoid().chunk(3, -1)
        drive = use * v
        h = tree(forget, drive) if self.form == "tree" else recur(forget, drive)
        return self.out(F.gelu(gate) * (out * h))


def recur(a, x):
    h, states = torch.zeros_like(x[:, 0]), []
    for a_t, x_t in zip(a.unbind(1), x.unbind(1)):
        h = torch.addcmul(x_t, a_t, h)
        states.append(h)
    return torch.stack(states, 1)


def tree(a, x):
    """The same in log2(L) sweeps, each of which doubles the range of steps that a step has seen."""
    reach = 1
    while reach < a.shape[1]:
        x = torch.cat([x[:, :reach], torch.addcmul(x[:, reach:], a[:, reach:], x[:, :-reach])], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], 1)
        reach *= 2
    return x


def linear(weight, bias=None):
    layer = nn.Linear(*reversed(weight.shape), bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias)
    return layer


def norm(given):
    layer = nn.LayerNorm(len(given["weight"]), device=given["weight"].device)
    layer.load_state_dict(given)
    return layer


def under(given, prefix):
    return {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}


class Block(nn.Module):
    def __init__(self, given, mixer, form, dropout):
        super().__init__()
        inner = under(given, "mixer.")
        if mixer == "s6":
            self.mixer = S6(inner, form or "replay")
        elif mixer == "ssd":
            self.mixer = Ssd(inner)
        elif mixer == "qlstm":
            self.mixer = Qlstm(inner, form or "loop")
        else:
            self.mixer = Attention(inner, mixer, dropout)
        self.norm1 = norm(under(given, "norm1."))
        second, mlp = under(given, "norm2."), under(given, "mlp.")
        self.norm2 = norm(second) if second else None
        self.mlp = mlp and nn.Sequential(linear(mlp["w1"], mlp["b1"]), nn.GELU(), linear(mlp["w2"], mlp["b2"]))

    def forward(self, residual):
        residual = residual + self.mixer(self.norm1(residual))
        if self.norm2 is None:
            return residual
        normed = self.norm2(residual)
        return residual + (self.mlp(normed) if self.mlp else normed)


class Model(nn.Module):
    def __init__(self, given, mixer, form, dropout):
        super().__init__()
        self.tokens, self.positions = nn.Parameter(given["embed.tok"]), given.get("embed.pos")
        if self.positions is not None:
            self.positions = nn.Parameter(self.positions)
        layers = 1 + max(int(name.split(".")[1]) for name in given if name.startswith("layers."))
        of = lambda layer: Block(under(given, f"layers.{layer}."), mixer, form, dropout)
        self.blocks = nn.Sequential(*map(of, range(layers)))
        self.norm, self.dropout = norm(under(given, "norm_f.")), dropout

    def loss(self, ids, labels, head):
        hidden = F.embedding(ids, self.tokens)
        if self.positions is not None:
            hidden = hidden + self.positions[: ids.shape[1]]
        hidden = self.norm(self.blocks(F.dropout(hidden, self.dropout, self.training)))
        if head == "labelled":
            asked = labels >= 0
            return F.cross_entropy(hidden[asked] @ self.tokens.mT, labels[asked])
        logits = hidden @ self.tokens.mT
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="weights and batches, from dsf bench step --export")
    parser.add_argument("--mixer", required=True, choices=["softmax", "linear", "normalized", "s6", "ssd", "qlstm"])
    parser.add_argument("--head", choices=["all", "labelled"], default="all")
    parser.add_argument("--form", choices=[*scan.FORMS, "tree"])
    parser.add_argument("--micro", type=int, default=0, help="examples at a time, their gradients added up")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--wd", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    scan.autocast(parser)
    given = parser.parse_args()
    if scan.absent(given.form):
        return
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    device = scan.settle(given.device)
    tensors = {name: x.to(device) for name, x in scan.load(given.load).items()}
    ids, labels = tensors.pop("data.tokens"), tensors.pop("data.labels")
    model = Model(tensors, given.mixer, given.form, given.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=given.wd, fused=True)
    batches = iter(range(given.warm + given.steps))

    def step():
        at = next(batches) % len(ids)
        optimizer.zero_grad(set_to_none=True)
        whole, loss = len(ids[at]), 0.0
        micro = given.micro or whole
        for first in range(0, whole, micro):
            few = slice(first, first + micro)
            # All examples have the same number of labels, so a mean over examples is the mean over labels.
            with scan.precision(given):
                part = model.loss(ids[at, few], labels[at, few], given.head) * (len(ids[at, few]) / whole)
            part.backward()
            loss += float(part.detach())
        optimizer.step()
        return loss

    losses, wall, cpu = scan.timed(step, given.warm, given.steps, device)
    scan.tell(wall, cpu, losses)


if __name__ == "__main__":
    main()
