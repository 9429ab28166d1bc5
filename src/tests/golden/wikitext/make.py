"""Makes the golden files of Pythia's body: small models in PyTorch, float64, attention without a softmax as a loop
over time and positions as complex numbers. Run `python make.py FOLDER` with any PyTorch 2.

A file holds the weights (`param/NAME`), windows of text (`tokens`, `targets`), and what comes of them: `logits`,
`loss`, `grad/NAME`, and `loss_after` one step of AdamW at rate 1e-3, betas 0.9 and 0.95, with decay 0.1 on matrices
and gradients clipped to a norm of 1.

Where `transformers` is installed, the model with softmax and positions is compared with its GPTNeoXForCausalLM
before anything is written; it is not needed for making the files.
"""

import json
import math
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

VOCAB, LENGTH, WIDTH, HEADS, LAYERS, HIDDEN, TURNED, BATCH = 40, 12, 16, 2, 2, 32, 4, 3


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

    def affine(self, place, mark, x, out):
        """x W^T + b with the weight `w` and the bias `b` of this mark."""
        return x @ self(f"{place}.w{mark}", out, x.shape[-1]).T + self(f"{place}.b{mark}", out, spread=0.3)

    def norm(self, place, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        d = x.shape[-1]
        return scaled * self(f"{place}.weight", d, about=1, spread=0.3) + self(f"{place}.bias", d, spread=0.3)


def turned(x):
    """(batch, length, heads, width): channels c and c + TURNED / 2 of a head are a complex number, which position p
    turns by the angle p 10000^(-2c / TURNED); channels from TURNED on stay."""
    half = TURNED // 2
    speeds = 10_000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / TURNED)
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * speeds
    pairs = torch.complex(x[..., :half], x[..., half:TURNED]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag, x[..., TURNED:]], -1)


def softmax(q, k, v):
    scores = torch.einsum("bihc,bjhc->bhij", q, k) / math.sqrt(q.shape[-1])
    later = torch.ones(q.shape[1], q.shape[1]).triu(1).bool()
    return torch.einsum("bhij,bjhe->bihe", scores.masked_fill(later, -math.inf).softmax(-1), v)


def running(q, k, v):
    """q_t . sum_(s <= t) k_s v_s^T, step by step."""
    state, outs = 0, []
    for t in range(q.shape[1]):
        state = state + k[:, t, :, :, None] * v[:, t, :, None, :]
        outs.append((q[:, t, :, :, None] * state).sum(2))
    return torch.stack(outs, 1)


def attention(w, place, x, mixer, rotary):
    heads = lambda y: y.unflatten(-1, (HEADS, -1))
    q, k, v = (heads(w.affine(place, mark, x, WIDTH)) for mark in "qkv")
    if rotary == "pre":
        q, k = turned(q), turned(k)
    if mixer == "softmax":
        o = softmax(q, k, v)
    elif mixer == "linear":
        q, k = F.elu(q) + 1, F.elu(k) + 1
        below = running(q, k, torch.ones_like(v[..., :1]))
        if rotary == "post":
            q, k = turned(q), turned(k)
        o = running(q, k, v) / below
    else:
        o = (-w.affine(place, "n", x, HEADS)).exp().unsqueeze(-1) * running(q, k, v)
    return w.affine(place, "out", o.flatten(2), WIDTH)


def logits(w, tokens, mixer, rotary):
    x = w("embed.tok", VOCAB, WIDTH, spread=1.0)[tokens]
    for layer in range(LAYERS):
        at = f"layers.{layer}"
        mixed = attention(w, f"{at}.mixer", w.norm(f"{at}.norm1", x), mixer, rotary)
        hidden = w.affine(f"{at}.mlp", "1", w.norm(f"{at}.norm2", x), HIDDEN)
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + mixed + w.affine(f"{at}.mlp", "2", hidden, WIDTH)
    return w.norm("norm_f", x) @ w("head.weight", VOCAB, WIDTH).T


def loss_of(y, targets):
    return -(y.log_softmax(-1).gather(-1, targets.unsqueeze(-1))).mean()


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


def windows(w):
    text = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), generator=w.generator)
    return text[:, :-1], text[:, 1:]


def make(folder, seed, mixer, rotary):
    w = Weights(seed)
    tokens, targets = windows(w)
    y = logits(w, tokens, mixer, rotary)
    loss = loss_of(y, targets)
    loss.backward()
    out = {f"param/{k}": p.detach().clone() for k, p in w.all.items()}
    out |= {f"grad/{k}": p.grad.clone() for k, p in w.all.items()}
    ids = {"tokens": tokens, "targets": targets}
    out |= {k: x.to(torch.int32) for k, x in ids.items()} | {"logits": y, "loss": loss}
    norm = torch.nn.utils.clip_grad_norm_(w.all.values(), 1.0)
    assert norm > 1.2, f"{mixer} {rotary}: the norm {norm} leaves nothing to clip"
    matrices = [p for p in w.all.values() if p.dim() > 1]
    others = [p for p in w.all.values() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8).step()
    out["loss_after"] = loss_of(logits(w, tokens, mixer, rotary), targets)
    save(folder / f"{mixer}_{rotary}.safetensors", out)


def compare_with_transformers():
    """Its cosines are of 32 bits whatever the model is of."""
    try:
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
    except ImportError:
        return print("transformers is not installed: not compared")
    w = Weights(100)
    tokens, _ = windows(w)
    ours = logits(w, tokens, "softmax", "pre")
    config = GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=HIDDEN, hidden_act="gelu", rotary_pct=TURNED * HEADS / WIDTH, rotary_emb_base=10_000,
        use_parallel_residual=True, layer_norm_eps=1e-5, tie_word_embeddings=False, max_position_embeddings=64,
        attn_implementation="eager",
    )
    theirs, p = {}, w.all
    for layer in range(LAYERS):
        ours_at, theirs_at = f"layers.{layer}", f"layers.{layer}"
        for kind, letter in (("weight", "w"), ("bias", "b")):
            fused = [p[f"{ours_at}.mixer.{letter}{mark}"].unflatten(0, (HEADS, -1)) for mark in "qkv"]
            theirs[f"{theirs_at}.attention.query_key_value.{kind}"] = torch.cat(fused, 1).flatten(0, 1)
            theirs[f"{theirs_at}.attention.dense.{kind}"] = p[f"{ours_at}.mixer.{letter}out"]
            theirs[f"{theirs_at}.mlp.dense_h_to_4h.{kind}"] = p[f"{ours_at}.mlp.{letter}1"]
            theirs[f"{theirs_at}.mlp.dense_4h_to_h.{kind}"] = p[f"{ours_at}.mlp.{letter}2"]
            theirs[f"{theirs_at}.input_layernorm.{kind}"] = p[f"{ours_at}.norm1.{kind}"]
            theirs[f"{theirs_at}.post_attention_layernorm.{kind}"] = p[f"{ours_at}.norm2.{kind}"]
            theirs[f"final_layer_norm.{kind}"] = p[f"norm_f.{kind}"]
    theirs["embed_in.weight"] = p["embed.tok"]
    model = GPTNeoXForCausalLM(config).double().eval()
    model.gpt_neox.load_state_dict({name: x.detach() for name, x in theirs.items()})
    model.get_output_embeddings().weight.data = p["head.weight"].detach()
    apart = (model(tokens).logits - ours).abs().max().item()
    assert apart <= 1e-6 * ours.abs().max().item(), f"transformers is {apart} apart"
    print(f"transformers is {apart:.1e} apart")


CASES = [("softmax", "pre"), ("softmax", "none"), ("linear", "pre"), ("linear", "post"), ("linear", "none"),
         ("normalized", "pre"), ("normalized", "none")]

if __name__ == "__main__":
    compare_with_transformers()
    for number, case in enumerate(CASES):
        make(Path(sys.argv[1]), number, *case)
