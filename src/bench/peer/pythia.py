#!/usr/bin/env python3
"""One training step of a language model of Pythia's shape in plain PyTorch, to be timed beside `dsf bench step`.

Parallel attention and MLP, rotary positions on a part of each head, a head of its own, softmax attention by PyTorch's own
fused kernel, AdamW with clipped gradients; weights, batches and the run's config come from the file that `--export` writes.

    dsf bench step --task wikitext --preset paper --batch-size 2 --export step.safetensors
    python pythia.py --load step.safetensors
"""
import argparse

import scan
import torch
import torch.nn.functional as F
from classifier import Attention
from step import linear, norm, under
from torch import nn


def rotation(length, dims, device):
    """Rotates the first `dims` channels of each head, in pairs (c, c + dims / 2), by angles of their positions."""
    rates = 10_000.0 ** -(torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rates
    cos, sin = (f(angles).float().repeat(1, 2).to(device) for f in (torch.cos, torch.sin))

    def turn(x):
        turned, rest = x[..., :dims], x[..., dims:]
        low, high = turned.chunk(2, -1)
        return torch.cat([turned * cos + torch.cat([-high, low], -1) * sin, rest], -1)

    return turn


class Block(nn.Module):
    def __init__(self, given, heads, turn):
        super().__init__()
        self.norm1, self.norm2 = norm(under(given, "norm1.")), norm(under(given, "norm2."))
        self.mixer, mlp = Attention(under(given, "mixer."), heads, turn), under(given, "mlp.")
        self.mlp = nn.Sequential(linear(mlp["w1"], mlp["b1"]), nn.GELU(), linear(mlp["w2"], mlp["b2"]))

    def forward(self, x):
        return x + self.mixer(self.norm1(x)) + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, given, run, length):
        super().__init__()
        model = run["model"]
        if model["layout"] != "parallel" or model["language"]["rotary"] == "post":
            raise SystemExit("error: this script has Pythia with rotary positions on queries and keys alone")
        self.tokens, self.head = nn.Parameter(given["embed.tok"]), nn.Parameter(given["head.weight"])
        turn = rotation(length, model["language"]["rotary_dims"], self.tokens.device)
        layers = [under(given, f"layers.{layer}.") for layer in range(model["n_layers"])]
        self.blocks = nn.Sequential(*(Block(layer, model["n_heads"], turn) for layer in layers))
        self.norm = norm(under(given, "norm_f."))

    def loss(self, ids, labels):
        hidden = self.norm(self.blocks(F.embedding(ids, self.tokens)))
        return F.cross_entropy(F.linear(hidden, self.head).flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="run, weights and batches, from dsf bench step --export")
    parser.add_argument("--mixer", choices=["softmax"], default="softmax")
    parser.add_argument("--dropout", type=float, default=0, help="0: nothing is dropped here")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--wd", type=float, default=0.1)
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
    model, adam = Model(tensors, run, ids.shape[-1]), run["train"]["adam"]
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1 or adam["decay"] == "all"], "weight_decay": given.wd},
        {"params": [p for p in parameters if p.dim() < 2 and adam["decay"] == "matrices"], "weight_decay": 0.0},
    ]
    betas = adam["beta1"], adam["beta2"]
    optimizer = torch.optim.AdamW(groups, lr=given.lr, betas=betas, eps=adam["eps"], fused=True)
    batches = iter(range(given.warm + given.steps))

    def step():
        at = next(batches) % len(ids)
        optimizer.zero_grad(set_to_none=True)
        with scan.precision(given):
            loss = model.loss(ids[at], labels[at])
        loss.backward()
        if adam["clip"]:
            torch.nn.utils.clip_grad_norm_(parameters, adam["clip"])
        optimizer.step()
        return float(loss.detach())

    losses, wall, cpu = scan.timed(step, given.warm, given.steps, device)
    scan.tell(wall, cpu, losses)


if __name__ == "__main__":
    main()
