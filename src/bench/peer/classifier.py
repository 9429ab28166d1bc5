#!/usr/bin/env python3
"""One training step of a classifier of the Long Range Arena in plain PyTorch, to be timed beside `dsf bench step`.

The bodies of the released attention (layer norm shared by both halves of a block, MLP) and of the released state space
models (GELU and GLU after the mixer), with softmax attention by PyTorch's own fused kernel or Mamba; weights, batches and
the run's config come from the file that `--export` writes.

    dsf bench step --task lra --dataset image --mixer mamba --batch-size 8 --dropout 0 --export step.safetensors
    python classifier.py --mixer mamba --load step.safetensors --form compiled

`--form` is the scan of Mamba (see scan.py).
"""
import argparse

import scan
import torch
import torch.nn.functional as F
from step import linear, norm, under
from torch import nn


class Attention(nn.Module):
    """Softmax attention by heads; `turn` applies the position embedding to queries and keys."""

    def __init__(self, given, heads, turn=lambda x: x):
        super().__init__()
        names = [("wq", "bq"), ("wk", "bk"), ("wv", "bv")]
        self.sizes = [len(given[w]) for w, _ in names]
        self.qkv = linear(torch.cat([given[w] for w, _ in names]), torch.cat([given[b] for _, b in names]))
        self.out, self.heads, self.turn = linear(given["wout"], given["bout"]), heads, turn

    def forward(self, x):
        by_head = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = map(by_head, self.qkv(x).split(self.sizes, -1))
        o = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        return self.out(o.transpose(1, 2).flatten(2))


class Mamba(nn.Module):
    def __init__(self, given, form):
        super().__init__()
        self.inner, self.out = linear(given["win"]), linear(given["wout"])
        self.narrow = linear(torch.cat([given["wu"], given["wb"], given["wc"]]))
        self.sizes = [len(given[name]) for name in ("wu", "wb", "wc")]
        self.dt = linear(given["wdt"], given["bdt"])
        self.a_log, self.skip = nn.Parameter(given["a_log"]), nn.Parameter(given["dskip"])
        width, taps = given["conv_w"].shape
        self.conv = nn.Conv1d(width, width, taps, groups=width, padding=taps - 1)
        self.conv.weight = nn.Parameter(given["conv_w"].unsqueeze(1))
        self.conv.bias = nn.Parameter(given["conv_b"])
        self.form = scan.FORMS[form]

    def forward(self, u):
        x, gate = self.inner(u).chunk(2, -1)
        x = F.silu(self.conv(x.mT)[..., : u.shape[1]].mT)
        low, b, c = self.narrow(x).split(self.sizes, -1)
        delta = F.softplus(self.dt(low))
        y = self.form(x, delta, -torch.exp(self.a_log), b, c) + self.skip * x
        return self.out(y * F.silu(gate))


class Block(nn.Module):
    """x + mixer(norm(x)), then x + MLP(norm(x)) with the same norm; or x + GLU(GELU(mixer(norm(x)))), or norm(x + ..(mixer(x)))."""

    def __init__(self, given, mixer, layout):
        super().__init__()
        self.post = layout == "postnorm"
        self.norm, self.mixer = norm(under(given, "norm1.")), mixer
        mlp, glu = under(given, "mlp."), under(given, "glu.")
        self.mlp = mlp and nn.Sequential(linear(mlp["w1"], mlp["b1"]), nn.GELU(), linear(mlp["w2"], mlp["b2"]))
        self.glu = glu and linear(glu["w"], glu["b"])

    def forward(self, x):
        if self.mlp:
            x = x + self.mixer(self.norm(x))
            return x + self.mlp(self.norm(x))
        mixed = F.gelu(self.mixer(x if self.post else self.norm(x)))
        x = x + (F.glu(self.glu(mixed)) if self.glu else mixed)
        return self.norm(x) if self.post else x


class Model(nn.Module):
    def __init__(self, given, run, form):
        super().__init__()
        model, classifier = run["model"], run["model"]["classifier"]
        plain = model["layout"] in ("shared", "prenorm", "postnorm") and classifier["pool"] == "mean" and not classifier["mask"]
        if not plain or classifier.get("bidirectional") or classifier["lambda_skip"]:
            raise SystemExit("error: this script has the released bodies of attention and of state space models alone")
        self.given = nn.ParameterDict({k.replace(".", "_"): v for k, v in given.items() if k.startswith(("embed", "head"))})
        mixer = {
            "softmax": lambda inner: Attention(inner, model["n_heads"]),
            "mamba": lambda inner: Mamba(inner, form),
        }[model["mixer"]]
        layers = [under(given, f"layers.{layer}.") for layer in range(model["n_layers"])]
        self.blocks = nn.Sequential(*(Block(layer, mixer(under(layer, "mixer.")), model["layout"]) for layer in layers))
        last = under(given, "norm_f.")
        self.norm = norm(last) if last else nn.Identity()
        # A token is one number: a gray value centred at 0.
        self.scale, self.shift = {"image": (1 / 61, -122.6 / 61)}.get(run["task"]["dataset"], (1.0, 0.0))
        self.twice = classifier["loss"] == "double-softmax"

    def loss(self, ids, labels):
        of = self.given
        if "embed_tok" in of:
            x = F.embedding(ids, of["embed_tok"])
            x = x + of["embed_pos"][: ids.shape[1]] if "embed_pos" in of else x
        else:
            x = F.linear(ids.unsqueeze(-1) * self.scale + self.shift, of["embed_w"], of["embed_b"])
        pooled = self.norm(self.blocks(x)).mean(1)
        logits = F.linear(pooled, of["head_w1"], of["head_b1"])
        if "head_w2" in of:
            logits = F.linear(F.relu(logits), of["head_w2"], of["head_b2"])
        return F.cross_entropy(torch.softmax(logits, -1) if self.twice else logits, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="run, weights and batches, from dsf bench step --export")
    parser.add_argument("--mixer", required=True, choices=["softmax", "mamba"])
    parser.add_argument("--form", choices=scan.FORMS, default="replay")
    parser.add_argument("--dropout", type=float, default=0, help="0: nothing is dropped here")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--wd", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    scan.autocast(parser)
    given = parser.parse_args()
    if given.dropout:
        parser.error("--dropout must be 0")
    torch.set_num_threads(given.threads)
    device = scan.settle(given.device)
    tensors = {name: x.to(device) for name, x in scan.load(given.load).items()}
    run = scan.run(given.load)
    ids, labels = tensors.pop("data.tokens"), tensors.pop("data.labels")
    model = Model(tensors, run, given.form)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=given.wd, fused=True)
    batches = iter(range(given.warm + given.steps))

    def step():
        at = next(batches) % len(ids)
        optimizer.zero_grad(set_to_none=True)
        with scan.precision(given):
            loss = model.loss(ids[at], labels[at])
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    losses, wall, cpu = scan.timed(step, given.warm, given.steps, device)
    scan.tell(wall, cpu, losses)


if __name__ == "__main__":
    main()
