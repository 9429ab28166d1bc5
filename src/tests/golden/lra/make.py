"""Makes the golden files of the classifiers of the Long Range Arena: small models in PyTorch, float64, every
recurrence a loop over time. Run `python make.py FOLDER` with any PyTorch 2; the files need nothing else.

A file holds the weights (`param/NAME`), a batch of padded documents (`tokens`, `lengths`, `labels`), and what
comes of them: `logits`, `loss`, `grad/NAME`, and `loss_after` one step of AdamW at rate 1e-3 and decay 0.1.
"""

import json
import math
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

SEQ_LEN, LONGEST, VOCAB, BATCH, LAYERS = 16, 13, 12, 4, 2


class Weights:
    """Named weights, drawn when first asked for: normal of the given spread about the given number."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.all = {}

    def __call__(self, name, *shape, about=0.0, spread=None):
        if name not in self.all:
            spread = shape[-1] ** -0.5 if spread is None else spread
            noise = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
            self.all[name] = (noise * spread + about).requires_grad_()
        return self.all[name]

    def under(self, prefix):
        return lambda name, *shape, **how: self(f"{prefix}.{name}", *shape, **how)

    def linear(self, at, x, out, w="w", b="b"):
        return F.linear(x, at(w, out, x.shape[-1]), at(b, out, spread=0.3) if b else None)


def layer_norm(at, x):
    d = x.shape[-1]
    return F.layer_norm(x, (d,), at("weight", d, about=1, spread=0.3), at("bias", d, spread=0.3), 1e-5)


def rms_norm(at, x):
    d = x.shape[-1]
    return at("weight", d, about=1, spread=0.3) * math.sqrt(d) * x / x.norm(dim=-1, keepdim=True)


def attention(w, at, x, c):
    """All three inner functions, over all pairs of steps. Queries, keys and values have biases; the output too."""
    (batch, length, d), heads, e = x.shape, c["heads"], c["n"]
    split = lambda y: y.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = (split(w.linear(at, x, out, f"w{name}", f"b{name}")) for name, out in (("q", e), ("k", e), ("v", d)))
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    kind = c["mixer"]
    if kind == "softmax":
        scores = q @ k.transpose(-1, -2) / math.sqrt(e // heads)
        y = scores.masked_fill(~causal, -math.inf).softmax(-1) @ v
    elif kind == "linear":
        pairs = ((F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)) * causal
        y = pairs @ v / pairs.sum(-1, keepdim=True)
    else:
        n = w.linear(at, x, heads, "wn", "bn").transpose(1, 2).unsqueeze(-1)
        g = {"normalized": (-n).exp, "normalized-softplus": lambda: 1 / F.softplus(n),
             "normalized-sigmoid": lambda: 1 + (-n).exp()}[kind]()
        y = g * (((q @ k.transpose(-1, -2)) * causal) @ v)
    return w.linear(at, y.transpose(1, 2).flatten(2), d, "wout", "bout")


def scan(x, delta, a, b, c):
    """h_t = e^(delta A) h + (delta x) B_t, y = C_t . h: x and delta (B, L, E), a (E, n), b and c (B, L, n)."""
    h, ys = x.new_zeros(x.shape[0], x.shape[2], b.shape[-1]), []
    for t in range(x.shape[1]):
        h = (delta[:, t, :, None] * a).exp() * h + (delta[:, t] * x[:, t])[:, :, None] * b[:, t, None, :]
        ys.append((h * c[:, t, None, :]).sum(-1))
    return torch.stack(ys, 1)


def selective(w, at, x, d, n):
    """The S6 core on x of any width: the state's output, without D."""
    width, rank = x.shape[-1], -(-d // 16)
    delta = w.linear(at, w.linear(at, x, rank, "wu", None), width, "wdt", None)
    delta = F.softplus(delta + at("bdt", width, about=-1, spread=0.5))
    a = -at("a_log", width, n, about=0.5, spread=0.5).exp()
    return scan(x, delta, a, w.linear(at, x, n, "wb", None), w.linear(at, x, n, "wc", None))


def s6(w, at, x, c):
    d = x.shape[-1]
    y = selective(w, at, x, d, c["n"])
    if c.get("end") == "input":  # y + (W_D u) u, the reading of the article's equation (4)
        return y + w.linear(at, x, d, "wd", None) * x
    return w.linear(at, y + at("dskip", d, about=1, spread=0.3) * x, d, "wout", None)


def short_conv(at, x):
    """Each channel for itself; the last of the four taps meets the current step."""
    width = x.shape[-1]
    taps, bias = at("conv_w", width, 4), at("conv_b", width, spread=0.3)
    return F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), taps.unsqueeze(1), bias, groups=width).transpose(1, 2)


def mamba(w, at, u, c):
    d = u.shape[-1]
    width = int(c["expand"] * d)
    x, z = w.linear(at, u, 2 * width, "win", None).split(width, -1)
    x = F.silu(short_conv(at, x))
    y = selective(w, at, x, d, c["n"]) + at("dskip", width, about=1, spread=0.3) * x
    return w.linear(at, y * F.silu(z), d, "wout", None)


def ssd(w, at, u, c):
    """One head as wide as the model; one scalar A and D."""
    (d, n) = (u.shape[-1], c["n"])
    x, b, cc, dt = (w.linear(at, u, out, name, None) for name, out in (("wx", d), ("wb", n), ("wc", n), ("wdt", 1)))
    delta = F.softplus(dt + at("bdt", 1, about=-1)).expand_as(x)
    a = -at("a_log", 1, about=0.5, spread=0.5).exp().expand(d, n)
    return w.linear(at, scan(x, delta, a, b, cc) + at("dskip", 1, about=1, spread=0.3) * x, d, "wout", None)


def rg_lru(w, at, v, c):
    d = v.shape[-1]
    width = int(c["expand"] * d)
    gate, u = w.linear(at, v, 2 * width, "win", None).split(width, -1)
    u = short_conv(at, u)
    f, i = w.linear(at, u, 2 * width, "wgates", "bgates").split(width, -1)
    alpha = (-8 * F.softplus(at("lam", width, about=-3, spread=1.0)) * f.sigmoid()).exp()
    drive = (1 - alpha**2 + 1e-6).sqrt() * i.sigmoid() * u
    h, hs = torch.zeros_like(u[:, 0]), []
    for t in range(u.shape[1]):
        h = alpha[:, t] * h + drive[:, t]
        hs.append(h)
    return w.linear(at, F.gelu(gate) * torch.stack(hs, 1), d, "wout", None)


MIXERS = {"s6": s6, "mamba": mamba, "ssd-mamba2": ssd, "rg-lru": rg_lru}


def block(w, at, x, c):
    under = lambda name: lambda *a, **k: at(f"{name}.{a[0]}", *a[1:], **k)
    mix = lambda v: MIXERS.get(c["mixer"], attention)(w, under("mixer"), v, c)
    skip = lambda r: at("lambda", 1, about=1, spread=0.3) * r if c.get("lambda_skip") else r
    norm1, layout, d, m = under("norm1"), c["layout"], x.shape[-1], c["m"]
    if layout in ("shared", "transformer"):
        norm2 = norm1 if layout == "shared" else under("norm2")
        u = skip(x) + mix(layer_norm(norm1, x))
        hidden = F.gelu(w.linear(under("mlp"), layer_norm(norm2, u), m, "w1", "b1"))
        return u + w.linear(under("mlp"), hidden, d, "w2", "b2")
    if layout == "hawk":
        x = x + mix(rms_norm(norm1, x))
        first, second = w.linear(under("mlp"), rms_norm(under("norm2"), x), 2 * m, "grow", None).split(m, -1)
        return x + w.linear(under("mlp"), F.gelu(first) * second, d, "shrink", None)
    v = F.gelu(mix(layer_norm(norm1, x) if layout == "prenorm" else x))
    first, second = w.linear(under("glu"), v, 2 * d).split(d, -1)
    x = skip(x) + first * second.sigmoid()
    return layer_norm(norm1, x) if layout == "postnorm" else x


def logits(w, tokens, lengths, c):
    d, m, classes = c["d"], c["m"], c["classes"]
    embed = w.under("embed")
    if "scalar" in c:
        x = w.linear(embed, (c["scalar"](tokens.double())).unsqueeze(-1), d)
    else:
        x = embed("tok", VOCAB, d, spread=1.0)[tokens]
        if c.get("positions", True):
            x = x + embed("pos", SEQ_LEN, d, spread=1.0)[: tokens.shape[1]]
    for layer in range(LAYERS):
        x = block(w, w.under(f"layers.{layer}"), x, c)
    if c["layout"] in ("shared", "transformer"):
        x = layer_norm(w.under("norm_f"), x)
    # Without a mask padding is as good as text.
    seen = lengths if c.get("mask") else torch.full_like(lengths, tokens.shape[1])
    inside = (torch.arange(tokens.shape[1]) < seen[:, None]).unsqueeze(-1)
    y = {
        "mean": lambda: (x * inside).sum(1) / seen[:, None],
        "last": lambda: x[torch.arange(len(x)), seen - 1],
        "max": lambda: x.masked_fill(~inside, -math.inf).amax(1),
    }[c.get("pool", "mean")]()
    head, match = w.under("head"), w.under("match")
    if c.get("dual") != "features":
        if c.get("mlp_head", True):
            y = w.linear(head, w.linear(head, y, m, "w1", "b1").relu(), classes, "w2", "b2")
        else:
            y = w.linear(head, y, classes, "w1", "b1")
    if "dual" in c:
        y = torch.cat(y.chunk(2), -1)
        y = w.linear(match, y, m, "w1", "b1").relu()
        y = w.linear(match, y, m // 2, "w2", "b2").relu()
        y = w.linear(match, y, classes, "w3", "b3")
    return y


def loss_of(y, labels, c):
    return F.cross_entropy(y.softmax(-1) if c.get("double", True) else y, labels)


def save(path, tensors):
    """The safetensors format: length of a JSON header, the header, the numbers."""
    names = {torch.float64: "F64", torch.int32: "I32"}
    header, data = {}, b""
    for name, x in tensors.items():
        x = x.detach().contiguous()
        raw = x.numpy().tobytes()
        header[name] = {"dtype": names[x.dtype], "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make(folder, seed, name, c):
    w = Weights(seed)
    documents, top = BATCH * (2 if "dual" in c else 1), 256 if c.get("picture") else VOCAB
    tokens = torch.randint(0 if c.get("picture") else 3, top, (documents, LONGEST), generator=w.generator)
    lengths = torch.full((documents,), LONGEST)
    if not c.get("picture"):
        lengths = torch.tensor([LONGEST, 1, 6, 11, 4, 9, 2, 12])[:documents]
        tokens[torch.arange(documents), lengths - 1] = 2
        tokens[torch.arange(LONGEST) >= lengths[:, None]] = 0
    labels = torch.randint(0, c["classes"], (BATCH,), generator=w.generator)
    y = logits(w, tokens, lengths, c)
    loss = loss_of(y, labels, c)
    loss.backward()
    out = {f"param/{k}": p.detach().clone() for k, p in w.all.items()}
    out |= {f"grad/{k}": p.grad for k, p in w.all.items()}
    ids = {"tokens": tokens, "lengths": lengths, "labels": labels}
    out |= {k: x.to(torch.int32) for k, x in ids.items()} | {"logits": y, "loss": loss}
    torch.optim.AdamW(w.all.values(), lr=1e-3, weight_decay=0.1).step()
    out["loss_after"] = loss_of(logits(w, tokens, lengths, c), labels, c)
    save(folder / f"{name}.safetensors", out)


def attends(mixer, **more):
    return {"mixer": mixer, "layout": "shared", "d": 8, "n": 6, "heads": 2, "m": 6, "classes": 10, **more}


def states(mixer, **more):
    return {"mixer": mixer, "layout": "postnorm", "d": 8, "n": 3, "expand": 1.3, "m": 6, "classes": 10,
            "scalar": lambda t: t, "mlp_head": False, **more}


MATCHED = {"layout": "transformer", "mask": True, "double": False, "mlp_head": True}
CASES = {
    "softmax_listops": attends("softmax"),
    "linear_text": attends("linear", classes=2, lambda_skip=True),
    "normalized_exp_text": attends("normalized", classes=2),
    "normalized_softplus_listops": attends("normalized-softplus"),
    "normalized_sigmoid_text": attends("normalized-sigmoid", classes=2),
    "softmax_listops_matched": attends("softmax", **MATCHED),
    "linear_listops_last": attends("linear", **MATCHED, pool="last"),
    "mamba_listops": states("mamba", lambda_skip=True),
    "mamba_text": states("mamba", layout="prenorm", classes=2, lambda_skip=True),
    "mamba_image": states("mamba", d=17, picture=True, scalar=lambda t: (t - 122.6) / 61),
    "mamba_pathfinder": states("mamba", layout="prenorm", classes=2, picture=True, scalar=lambda t: (t / 255 - 0.5) / 0.5),
    "s6_listops": states("s6"),
    "s6_listops_paper": states("s6", end="input", **MATCHED | {"mask": False}, positions=False),
    "s6_text_max": states("s6", **MATCHED, classes=2, positions=False, pool="max"),
    "ssd_image": states("ssd-mamba2", picture=True, scalar=lambda t: (t - 122.6) / 61),
    "hawk_listops": states("rg-lru", layout="hawk"),
    "softmax_retrieval": attends("softmax", classes=2, dual="logits"),
    "linear_retrieval_features": attends("linear", classes=2, dual="features"),
    "mamba_retrieval": states("mamba", layout="prenorm", classes=2, dual="logits"),
}
for case in ("s6_listops_paper", "s6_text_max"):  # the one body for all mixers reads a table
    del CASES[case]["scalar"]

if __name__ == "__main__":
    for number, (case, config) in enumerate(CASES.items()):
        make(Path(sys.argv[1]), number, case, config)
