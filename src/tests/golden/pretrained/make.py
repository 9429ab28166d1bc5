"""Makes tiny pretrained models with random weights, and their logits in float64, with `transformers` 5.24 and PyTorch.

    python make.py DIR [NAME ..]

`transformers` computes norms, gates and rotary frequencies in float32 whatever the dtype of the model. Here those
conversions are turned off, so that every step of the logits is in float64.
"""

import os
import sys

sys.path.pop(0)  # the folders beside this file are no packages
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
import transformers
from safetensors.torch import save_file

VOCABULARY = 61
IDS = 24

MODELS = {
    "bamba": transformers.BambaConfig(
        hidden_size=24, intermediate_size=40, num_hidden_layers=4, attn_layer_indices=[1, 3], num_attention_heads=6,
        num_key_value_heads=3, mamba_n_heads=8, mamba_d_head=6, mamba_d_state=5, mamba_n_groups=2, mamba_d_conv=3,
        mamba_expand=2, mamba_chunk_size=8, mamba_proj_bias=True, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-4,
        time_step_limit=(0.05, 0.9)),
    "falcon_mamba": transformers.FalconMambaConfig(
        hidden_size=20, state_size=6, num_hidden_layers=2, expand=3, time_step_rank=3, conv_kernel=3, use_bias=True,
        mixer_rms_eps=1e-3, layer_norm_epsilon=1e-4),
    "gpt2": transformers.GPT2Config(
        n_embd=24, n_layer=2, n_head=3, n_inner=50, n_positions=40, layer_norm_epsilon=1e-4),
    "gpt_neox": transformers.GPTNeoXConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=52, max_position_embeddings=40,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}),
    "llama": transformers.LlamaConfig(
        hidden_size=24, intermediate_size=52, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        head_dim=10, max_position_embeddings=40, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-4,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0}, tie_word_embeddings=True),
    "mamba": transformers.MambaConfig(
        hidden_size=20, state_size=5, num_hidden_layers=2, expand=2, time_step_rank=3, conv_kernel=3, use_conv_bias=False,
        layer_norm_epsilon=1e-4),
    "mamba2": transformers.Mamba2Config(
        hidden_size=24, num_heads=8, head_dim=6, state_size=7, n_groups=4, num_hidden_layers=2, expand=2, chunk_size=8,
        use_bias=True, tie_word_embeddings=True, layer_norm_epsilon=1e-4),
    "recurrent_gemma": transformers.RecurrentGemmaConfig(
        hidden_size=24, intermediate_size=80, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1,
        lru_width=36, attention_window_size=7, conv1d_width=3, logits_soft_cap=5.0, attention_bias=True,
        block_types=["attention", "recurrent"]),
    "rwkv": transformers.RwkvConfig(
        hidden_size=20, attention_hidden_size=28, intermediate_size=44, num_hidden_layers=5, context_length=40,
        rescale_every=2),
    "xlstm": transformers.xLSTMConfig(
        hidden_size=24, num_heads=3, num_hidden_layers=2, qk_dim_factor=0.75, v_dim_factor=2.0, ffn_proj_factor=1.7,
        ffn_round_up_to_multiple_of=8, gate_soft_cap=4.0, output_logit_soft_cap=6.0, chunkwise_kernel="chunkwise--native_autograd",
        norm_eps=1e-4, eps=1e-3),
}


def keep_float64():
    """Turns off conversions from float64 to a shorter type."""
    short = (torch.float32, torch.bfloat16, torch.float16)
    to, softmax = torch.Tensor.to, torch.nn.functional.softmax

    def kept(self, *arguments, **named):
        wanted = [x for x in (*arguments, named.get("dtype")) if isinstance(x, torch.dtype)]
        if self.dtype == torch.float64 and any(x in short for x in wanted):
            return self
        return to(self, *arguments, **named)

    torch.Tensor.to = kept
    kind = torch.Tensor.type
    torch.Tensor.type = lambda self, dtype: self if self.dtype == torch.float64 and dtype in short else kind(self, dtype)
    torch.Tensor.float = lambda self: self if self.dtype == torch.float64 else to(self, torch.float64)
    torch.nn.functional.softmax = lambda x, dim=None, _stacklevel=3, dtype=None: softmax(x, dim=dim)
    zeros, ones = torch.zeros, torch.ones
    for name, make in (("zeros", zeros), ("ones", ones)):
        def wider(*arguments, make=make, **named):
            return make(*arguments, **(named | {"dtype": torch.float64} if named.get("dtype") == torch.float32 else named))
        setattr(torch, name, wider)


def frequencies(model):
    """Rotary frequencies in float64."""
    for name, module in model.named_modules():
        if hasattr(module, "inv_freq"):
            count = module.inv_freq.numel()
            base = model.config.rope_parameters["rope_theta"]
            module.inv_freq = base ** -(torch.arange(count, dtype=torch.float64) / count)


def make(folder, name):
    config = MODELS[name]
    config.vocab_size = VOCABULARY
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Also what starts at 0 or 1.
            parameter += 0.2 * torch.randn(parameter.shape)
    place = os.path.join(folder, name)
    model.save_pretrained(place)
    os.remove(os.path.join(place, "generation_config.json"))
    ids = torch.randint(VOCABULARY, (1, IDS))
    keep_float64()
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float64).eval()
    frequencies(model)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    assert logits.dtype == torch.float64
    save_file({"input_ids": ids, "logits_f64": logits.contiguous()}, os.path.join(place, "expected.safetensors"),
              metadata={"precision": "float64"})
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    with open(os.path.join(place, "expected.json"), "w") as file:
        file.write('{"nll": %.17g}\n' % loss.item())


if __name__ == "__main__":
    if len(sys.argv) == 3:
        make(*sys.argv[1:])
    else:
        for name in MODELS:  # each in a process of its own, since the conversions stay off
            assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, sys.argv[1], name]) == 0, name
