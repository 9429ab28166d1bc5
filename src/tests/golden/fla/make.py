"""Makes tiny language models with random weights in the layout of flash-linear-attention (fla) 0.6, and their logits in
float64: GLA, DeltaNet, Gated DeltaNet, RWKV-7, RetNet and HGRN2.

    python make.py [NAME ..]

It needs numpy and safetensors; each model becomes a folder beside this file. Weights are rounded to float32. Each mixer
is the recurrence of its paper, one token after the other with one state per head. Names of tensors, keys of the
configuration and constants are those of fla, none of its code is used; a constant that is not in the configuration
names the file of fla that sets it.

A folder without a number holds every key that fla writes; the others hold few, so that the rest takes fla's defaults.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCABULARY = 61
IDS = 24

# Rank of GLA's forget gate and divisor of its logarithm: `layers/gla.py`; no key of the configuration reaches them.
GATE_RANK = 16
GATE_DIVISOR = 16.0

# Added to the sum of squares of a query or key, inside the root: `modules/norm/l2norm.py`.
L2_EPS = 1e-6

# Smallest divisor of keys in RWKV-7 without fused norms: PyTorch's `normalize`, called in `layers/rwkv7.py`.
L2_FLOOR = 1e-12

# HGRN2's norm before the output projection has this eps whatever `norm_eps` says: `layers/hgrn2.py` calls
# `rms_norm_linear` of `modules/norm/layernorm.py` without one.
HGRN2_EPS = 1e-5

# Base of the rotary frequencies of retention: `modules/rotary/ops.py`.
ROTARY_BASE = 10000.0

# The slowest decay of RWKV-7 in its logarithm, -exp(-1/2): `layers/rwkv7.py`.
RWKV7_DECAY = -0.6065306597126334

# Keys that fla writes into every configuration, and that change no number here.
USUAL = {
    "attn": None, "attn_mode": "chunk", "bos_token_id": 1, "eos_token_id": 2, "fuse_cross_entropy": True,
    "fuse_linear_cross_entropy": False, "initializer_range": 0.02, "max_position_embeddings": 2048,
    "pad_token_id": None, "use_cache": True, "use_l2warp": False,
}

# The same for all models but RWKV-7. `attnres_block_size` would mix the outputs of earlier layers if it were a number.
GATED_MLP = {"attnres_block_size": None, "fuse_swiglu": True, "hidden_act": "swish"}

MODELS = {
    "gla": USUAL | GATED_MLP | {
        "model_type": "gla", "hidden_size": 24, "num_hidden_layers": 2, "num_heads": 3, "num_kv_heads": None,
        "expand_k": 0.5, "expand_v": 1.5, "hidden_ratio": 4, "intermediate_size": 40, "feature_map": None,
        "use_short_conv": False, "conv_size": 4, "use_output_gate": True, "clamp_min": None, "elementwise_affine": True,
        "norm_eps": 1e-3, "fuse_norm": True, "use_gk": True, "use_gv": False, "tie_word_embeddings": False},
    # The norm has another name, and the width of the gated MLP is a multiple of 256.
    "gla-2": {
        "model_type": "gla", "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 2, "expand_k": 1.5,
        "fuse_norm": False, "tie_word_embeddings": True},
    "delta_net": USUAL | GATED_MLP | {
        "model_type": "delta_net", "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 3, "expand_k": 0.75,
        "expand_v": 1.5, "hidden_ratio": 4, "intermediate_size": 40, "use_gate": False, "use_short_conv": True,
        "allow_neg_eigval": False, "conv_size": 4, "use_beta": True, "use_output_norm": True, "qk_norm": "l2",
        "qk_activation": "silu", "norm_eps": 1e-3, "fuse_norm": True, "tie_word_embeddings": True},
    # An output gate, and steps of up to 2.
    "delta_net-2": {
        "model_type": "delta_net", "hidden_size": 20, "num_hidden_layers": 2, "num_heads": 2, "expand_v": 1.5,
        "intermediate_size": 36, "use_gate": True, "conv_size": 3, "allow_neg_eigval": True},
    "gated_deltanet": USUAL | GATED_MLP | {
        "model_type": "gated_deltanet", "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 3, "num_v_heads": None,
        "head_dim": 6, "expand_v": 1.5, "hidden_ratio": 4, "intermediate_size": 40, "use_gate": True,
        "output_gate_activation": "swish", "use_short_conv": True, "allow_neg_eigval": True, "conv_size": 4,
        "norm_eps": 1e-3, "fuse_norm": True, "tie_word_embeddings": False},
    # More heads of values than of keys, no output gate.
    "gated_deltanet-2": {
        "model_type": "gated_deltanet", "hidden_size": 20, "num_hidden_layers": 2, "num_heads": 2, "num_v_heads": 4,
        "head_dim": 8, "expand_v": 0.5, "intermediate_size": 36, "use_gate": False, "conv_size": 3},
    "rwkv7": USUAL | {
        "model_type": "rwkv7", "hidden_size": 20, "num_hidden_layers": 3, "head_dim": 5, "num_heads": None,
        "value_dim": [20, 20, 20], "decay_low_rank_dim": 6, "gate_low_rank_dim": 7, "a_low_rank_dim": 5,
        "v_low_rank_dim": 4, "hidden_ratio": 4, "intermediate_size": None, "hidden_act": "sqrelu", "norm_first": True,
        "norm_bias": True, "norm_eps": 1e-3, "fuse_norm": True, "tie_word_embeddings": False},
    # No norm after the embedding, keys divided by their exact length.
    "rwkv7-2": {
        "model_type": "rwkv7", "hidden_size": 24, "num_hidden_layers": 3, "head_dim": None, "num_heads": 3,
        "decay_low_rank_dim": 4, "gate_low_rank_dim": 5, "a_low_rank_dim": 6, "v_low_rank_dim": 7,
        "intermediate_size": 40, "norm_first": False, "fuse_norm": False,
        "tie_word_embeddings": True},
    "retnet": USUAL | GATED_MLP | {
        "model_type": "retnet", "hidden_size": 24, "num_hidden_layers": 2, "num_heads": 3, "num_kv_heads": None,
        "expand_k": 1.0, "expand_v": 2.0, "hidden_ratio": 2, "intermediate_size": 40, "feature_map": None,
        "use_short_conv": False, "conv_size": 4, "use_output_gate": True, "elementwise_affine": True, "norm_eps": 1e-3,
        "fuse_norm": True, "tie_word_embeddings": False},
    # The norm has another name.
    "retnet-2": {
        "model_type": "retnet", "hidden_size": 24, "num_hidden_layers": 2, "num_heads": 3, "expand_k": 0.5,
        "expand_v": 1.0, "intermediate_size": 36, "fuse_norm": False},
    "hgrn2": USUAL | GATED_MLP | {
        "model_type": "hgrn2", "hidden_size": 24, "num_hidden_layers": 3, "num_heads": 3, "expand_ratio": 8,
        "hidden_ratio": 4, "intermediate_size": 40, "use_short_conv": False, "conv_size": 4, "use_lower_bound": True,
        "elementwise_affine": True, "norm_eps": 1e-3, "fuse_norm": True, "tie_word_embeddings": False},
}

# Defaults of `models/NAME/configuration_NAME.py`, of those keys that change a number.
SHARED_DEFAULTS = {
    "conv_size": 4, "fuse_norm": True, "hidden_ratio": 4, "intermediate_size": None, "norm_eps": 1e-6,
    "tie_word_embeddings": False, "use_output_gate": True,
}
DEFAULTS = {
    "gla": {"expand_k": 0.5, "expand_v": 1},
    "delta_net": {
        "allow_neg_eigval": False, "expand_k": 1.0, "expand_v": 1.0, "use_gate": False},
    "gated_deltanet": {
        "allow_neg_eigval": False, "expand_v": 2.0, "head_dim": 256, "num_v_heads": None, "use_gate": True},
    "rwkv7": {
        "a_low_rank_dim": 64, "decay_low_rank_dim": 64, "gate_low_rank_dim": 128, "head_dim": 64,
        "norm_eps": 1e-5, "norm_first": True, "num_heads": None, "v_low_rank_dim": 16},
    "retnet": {"expand_k": 1.0, "expand_v": 2.0, "hidden_ratio": 2},
    "hgrn2": {"expand_ratio": 128, "use_lower_bound": True},
}

CLASSES = {
    "gla": "GLAForCausalLM", "delta_net": "DeltaNetForCausalLM", "gated_deltanet": "GatedDeltaNetForCausalLM",
    "rwkv7": "RWKV7ForCausalLM", "retnet": "RetNetForCausalLM", "hgrn2": "HGRN2ForCausalLM",
}


class Weights:
    """Random tensors below a prefix, each drawn and rounded to float32 when it is first asked for."""

    def __init__(self, random, prefix="", drawn=None):
        self.random, self.prefix, self.drawn = random, prefix, {} if drawn is None else drawn

    def below(self, name):
        """The tensors whose names continue with `name`."""
        return Weights(self.random, f"{self.prefix}{name}.", self.drawn)

    def draw(self, name, shape, mean=0.0, deviation=0.3):
        name = self.prefix + name
        assert name not in self.drawn, name
        self.drawn[name] = (mean + deviation * self.random.standard_normal(shape)).astype(np.float32)
        return self.drawn[name].astype(np.float64)

    def linear(self, name, out, x, gain=1.0, bias=None):
        """A linear map of `x` whose output is `gain` times as large; `bias` is the mean of its bias, if it has one."""
        within = x.shape[-1]
        y = x @ self.draw(f"{name}.weight", (out, within), deviation=gain / np.sqrt(within)).T
        return y if bias is None else y + self.draw(f"{name}.bias", (out,), bias)

    def convolution(self, name, width, x):
        """silu of a causal convolution of each channel; the last tap meets the current token."""
        taps = self.draw(f"{name}.weight", (x.shape[1], 1, width), deviation=0.7)
        y = np.zeros_like(x)
        for t in range(len(x)):
            for lag in range(min(width, t + 1)):
                y[t] += taps[:, 0, width - 1 - lag] * x[t - lag]
        return silu(y)

    def rms_norm(self, name, eps, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.draw(f"{name}.weight", x.shape[-1:], 1.0)

    def layer_norm(self, name, eps, x):
        return self.rms_norm(name, eps, x - x.mean(-1, keepdims=True)) + self.draw(f"{name}.bias", x.shape[-1:])


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def split(x, width):
    """Heads of `width` channels each: `(L, H, width)`."""
    return x.reshape(len(x), -1, width)


def join(x):
    return x.reshape(len(x), -1)


def unit(x):
    """Divides each head by its length."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS)


def attend(q, k, v, decay):
    """A decaying sum of products of keys and values, `S_t = diag(decay_t) S_(t-1) + k_t v_t'`, read as `S_t' q_t`.

    Queries are divided by the root of their width: `ops/gla/fused_recurrent.py`, `ops/simple_gla/fused_recurrent.py`.
    """
    y = np.zeros(v.shape)
    for h in range(q.shape[1]):
        state = np.zeros((k.shape[2], v.shape[2]))
        for t in range(len(q)):
            state = decay[t, h][:, None] * state + np.outer(k[t, h], v[t, h])
            y[t, h] = q[t, h] @ state
    return y / np.sqrt(q.shape[2])


def correct(q, k, v, beta, decay):
    """The delta rule after a decay: the state forgets, then what it holds at a key moves towards the value by `beta`.

    Queries are divided by the root of their width: `ops/delta_rule/fused_recurrent.py` and
    `ops/gated_delta_rule/fused_recurrent.py`.
    """
    y = np.zeros(v.shape)
    for h in range(q.shape[1]):
        state = np.zeros((k.shape[2], v.shape[2]))
        for t in range(len(q)):
            state = decay[t, h] * state
            error = v[t, h] - k[t, h] @ state
            state = state + beta[t, h] * np.outer(k[t, h], error)
            y[t, h] = q[t, h] @ state
    return y / np.sqrt(q.shape[2])


def widths(config):
    """Widths of a head of keys and of a head of values."""
    return tuple(round(config["hidden_size"] * config[key]) // config["num_heads"] for key in ("expand_k", "expand_v"))


def gated_norm(w, config, o, x, name):
    """Norm of each head of `o` with one weight for all heads, then a gate from `x`."""
    gate = silu(split(w.linear("g_proj", o.shape[1] * o.shape[2], x), o.shape[2]))
    return w.rms_norm(name, config["norm_eps"], o) * gate


def norm_or_gated_norm(w, config, o, x):
    """Norm of GLA and retention, whose name says whether it is fused with the gate."""
    if not config["use_output_gate"]:
        return w.rms_norm("g_norm", config["norm_eps"], o)
    return gated_norm(w, config, o, x, "g_norm_swish_gate" if config["fuse_norm"] else "g_norm")


def convolved(w, config, **streams):
    """Streams of queries, keys and values after their short convolutions."""
    return [w.convolution(f"{name}_conv1d", config["conv_size"], z) for name, z in streams.items()]


def gla(w, config, shared, layer, x):
    size, heads, (n_k, n_v) = config["hidden_size"], config["num_heads"], widths(config)
    q, k, v = (w.linear(f"{name}_proj", heads * n, x) for name, n in (("q", n_k), ("k", n_k), ("v", n_v)))
    # Logits of many sizes, so that the divisor leaves some forgetting.
    logits = w.linear("gk_proj.1", heads * n_k, w.linear("gk_proj.0", GATE_RANK, x), 6.0, 0.0)
    decay = -softplus(-logits) / GATE_DIVISOR
    q, k, v, decay = (split(z, n) for z, n in ((q, n_k), (k, n_k), (v, n_v), (decay, n_k)))
    o = norm_or_gated_norm(w, config, attend(q, k, v, np.exp(decay)), x)
    return w.linear("o_proj", size, join(o))


def delta_output(w, config, o, x):
    """Output of both delta nets: the norm of each head, gated or not, and the output projection."""
    gated = config["use_gate"]
    o = gated_norm(w, config, o, x, "o_norm") if gated else w.rms_norm("o_norm", config["norm_eps"], o)
    return w.linear("o_proj", config["hidden_size"], join(o))


def delta_net(w, config, shared, layer, x):
    heads, (n_k, n_v) = config["num_heads"], widths(config)
    q, k, v = (w.linear(f"{name}_proj", heads * n, x, 1.5) for name, n in (("q", n_k), ("k", n_k), ("v", n_v)))
    q, k, v = convolved(w, config, q=q, k=k, v=v)
    q, k = unit(split(q, n_k)), unit(split(k, n_k))
    beta = sigmoid(w.linear("b_proj", heads, x)) * (2 if config["allow_neg_eigval"] else 1)
    o = correct(q, k, split(v, n_v), beta, np.ones(beta.shape))
    return delta_output(w, config, o, x)


def gated_deltanet(w, config, shared, layer, x):
    heads, n_k = config["num_heads"], config["head_dim"]
    wide, n_v = config["num_v_heads"] or heads, round(n_k * config["expand_v"])
    q, k, v = w.linear("q_proj", heads * n_k, x), w.linear("k_proj", heads * n_k, x), w.linear("v_proj", wide * n_v, x)
    q, k, v = convolved(w, config, q=q, k=k, v=v)
    # A head of queries and keys serves as many neighbouring heads of values.
    q, k = (unit(np.repeat(split(z, n_k), wide // heads, 1)) for z in (q, k))
    beta = sigmoid(w.linear("b_proj", wide, x)) * (2 if config["allow_neg_eigval"] else 1)
    step = softplus(w.linear("a_proj", wide, x) + w.draw("dt_bias", (wide,), -1.0))
    decay = np.exp(-np.exp(w.draw("A_log", (wide,))) * step)
    o = correct(q, k, split(v, n_v), beta, decay)
    return delta_output(w, config, o, x)


def retnet(w, config, shared, layer, x):
    heads, (n_k, n_v) = config["num_heads"], widths(config)
    q, k, v = (split(w.linear(f"{name}_proj", heads * n, x), n) for name, n in (("q", n_k), ("k", n_k), ("v", n_v)))
    # The first half of a head is turned with the second half.
    angles = np.arange(len(x))[:, None] * ROTARY_BASE ** (-np.arange(0, n_k, 2) / n_k)
    turn = np.exp(1j * angles)[:, None, :]
    q, k = ((z[..., :n_k // 2] + 1j * z[..., n_k // 2:]) * turn for z in (q, k))
    q, k = (np.concatenate([z.real, z.imag], -1) for z in (q, k))
    # Decay of each head: `ops/retention/fused_recurrent.py`.
    decay = 1 - 2.0 ** (-5 - np.arange(heads))
    o = attend(q, k, v, np.broadcast_to(decay[None, :, None], k.shape))
    return w.linear("o_proj", config["hidden_size"], join(norm_or_gated_norm(w, config, o, x)))


def hgrn2(w, config, shared, layer, x):
    size, n_f = config["hidden_size"], config["expand_ratio"]
    heads = size // n_f
    outs = {"q": heads * n_f, "f": heads * n_f, "i": size}
    q, f, i = (w.linear(f"{name}_proj", out, x, 1.5) for name, out in outs.items())
    forget = sigmoid(f)
    if config["use_lower_bound"] and layer > 0:
        bound = shared["bounds"][layer]
        forget = bound + (1 - bound) * forget
    o = attend(split(silu(q), n_f), split(1 - forget, n_f), split(i, size // heads), split(forget, n_f))
    return w.linear("o_proj", size, w.rms_norm("g_norm", HGRN2_EPS, join(o)))


def shifted(x):
    """The token before each token, 0 before the first."""
    return np.concatenate([np.zeros_like(x[:1]), x[:-1]])


def low_rank(w, name, rank, out, x, activation=lambda z: z, bias=None):
    """Two linear maps with an activation between them."""
    return w.linear(f"{name}.lora.2", out, activation(w.linear(f"{name}.lora.0", rank, x)), 1.5, bias)


def rwkv7(w, config, shared, layer, x):
    size = config["hidden_size"]
    width = config["head_dim"] or size // config["num_heads"]
    heads = size // width
    delta = shifted(x) - x
    # The parameters of the token shift have two leading axes of length 1.
    r_, w_, k_, v_, a_, g_ = (x + delta * w.draw(f"x_{name}", (1, 1, size), 0.5)[0] for name in "rwkvag")
    r, k, v = w.linear("r_proj", size, r_), w.linear("k_proj", size, k_), w.linear("v_proj", size, v_)
    decay = np.exp(RWKV7_DECAY * sigmoid(low_rank(w, "w_lora", config["decay_low_rank_dim"], size, w_, np.tanh, 0.0)))
    if layer == 0:
        shared["first_values"] = v
    else:
        share = sigmoid(low_rank(w, "v_lora", config["v_low_rank_dim"], size, v_, bias=0.0))
        v = v + share * (shared["first_values"] - v)
    rate = sigmoid(low_rank(w, "a_lora", config["a_low_rank_dim"], size, a_, bias=0.0))
    gate = low_rank(w, "g_lora", config["gate_low_rank_dim"], size, g_, sigmoid)
    removed = split(k * w.draw("k_k", (size,), 0.7), width)
    if config["fuse_norm"]:
        removed = unit(removed)
    else:
        removed = removed / np.maximum(np.sqrt((removed * removed).sum(-1, keepdims=True)), L2_FLOOR)
    k = k * (1 + (rate - 1) * w.draw("k_a", (size,), 1.0))
    r, k, v, decay, rate = (split(z, width) for z in (r, k, v, decay, rate))
    o = np.zeros(v.shape)
    for h in range(heads):
        state = np.zeros((width, width))
        for t in range(len(x)):
            held = removed[t, h] @ state
            state = decay[t, h][:, None] * state - np.outer(removed[t, h] * rate[t, h], held)
            state = state + np.outer(k[t, h], v[t, h])
            # Not divided by the root of the width: `layers/rwkv7.py`.
            o[t, h] = r[t, h] @ state
    # The eps of the norm of each head grows with the width of a head: `layers/rwkv7.py`.
    o = o - o.mean(-1, keepdims=True)
    o = join(o / np.sqrt((o * o).mean(-1, keepdims=True) + width * config["norm_eps"]))
    o = o * w.draw("g_norm.weight", (size,), 1.0) + w.draw("g_norm.bias", (size,))
    # The bonus of the current token is added after the norm: `ops/rwkv7/gate_output_correction.py`.
    bonus = (r * k * w.draw("r_k", (heads, width))).sum(-1, keepdims=True) * v
    return w.linear("o_proj", size, (o + join(bonus)) * gate)


def gated_mlp(w, config, x):
    """The gated MLP of all models but RWKV-7; its default width is `modules/mlp.py`'s."""
    width = config["intermediate_size"]
    if width is None:
        width = -(-int(config["hidden_size"] * (config["hidden_ratio"] or 4) * 2 / 3) // 256) * 256
    return w.linear("down_proj", x.shape[1], silu(w.linear("gate_proj", width, x)) * w.linear("up_proj", width, x), 1.5)


def rwkv7_ffn(w, config, x):
    """The channel mixing of RWKV-7; its default width is `models/rwkv7/modeling_rwkv7.py`'s."""
    width = config["intermediate_size"]
    if width is None:
        width = -(-int(config["hidden_size"] * (config["hidden_ratio"] or 4)) // 32) * 32
    x = x + (shifted(x) - x) * w.draw("x_k", x.shape[1:], 0.5)
    return w.linear("value", x.shape[1], np.maximum(w.linear("key", width, x), 0) ** 2)


MIXERS = {
    "gla": gla, "delta_net": delta_net, "gated_deltanet": gated_deltanet, "rwkv7": rwkv7, "retnet": retnet,
    "hgrn2": hgrn2,
}


def forward(w, config, ids):
    """Logits `(L, V)` of `ids`."""
    size, kind, eps = config["hidden_size"], config["model_type"], config["norm_eps"]
    rwkv = kind == "rwkv7"

    def norm(w, name, x):
        return w.layer_norm(name, eps, x) if rwkv else w.rms_norm(name, eps, x)

    # What one layer leaves to the others.
    model, shared = w.below("model"), {}
    table = model.draw("embeddings.weight", (VOCABULARY, size), deviation=2.5 / np.sqrt(size))
    if config.get("use_lower_bound"):
        # Lower bound of each layer's forget gates: a softmax over the layers, summed from the second layer to this one,
        # `models/hgrn2/modeling_hgrn2.py`.
        shares = np.exp(model.draw("lower_bounds", (config["num_hidden_layers"], size), deviation=1.0))
        shares = shares / shares.sum(0)
        shared["bounds"] = shares.cumsum(0) - shares[0]
    x = table[ids]
    for layer in range(config["num_hidden_layers"]):
        w_layer = model.below(f"layers.{layer}")
        if rwkv and config["norm_first"] and layer == 0:
            x = norm(w_layer, "pre_norm", x)
        x = x + MIXERS[kind](w_layer.below("attn"), config, shared, layer, norm(w_layer, "attn_norm", x))
        y = norm(w_layer, "ffn_norm" if rwkv else "mlp_norm", x)
        x = x + (rwkv7_ffn(w_layer.below("ffn"), config, y) if rwkv else gated_mlp(w_layer.below("mlp"), config, y))
    x = norm(model, "norm", x)
    return x @ table.T if config["tie_word_embeddings"] else w.linear("lm_head", VOCABULARY, x, 2.5)


def make(name):
    config = {"vocab_size": VOCABULARY, "torch_dtype": "float32"} | MODELS[name]
    config["architectures"] = [CLASSES[config["model_type"]]]
    random = np.random.default_rng(sum(map(ord, name)))
    ids = random.integers(VOCABULARY, size=IDS)
    w = Weights(random)
    logits = forward(w, SHARED_DEFAULTS | DEFAULTS[config["model_type"]] | config, ids)
    assert logits.dtype == np.float64
    place = Path(__file__).parent / name
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(w.drawn, place / "model.safetensors", metadata={"format": "pt"})
    expected = {"input_ids": ids[None].astype(np.int64), "logits_f64": np.ascontiguousarray(logits[None])}
    save_file(expected, place / "expected.safetensors", metadata={"precision": "float64"})
    largest = logits.max(-1, keepdims=True)
    scores = logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))
    loss = -scores[np.arange(IDS - 1), ids[1:]].mean()
    (place / "expected.json").write_text('{"nll": %.17g}\n' % loss)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
