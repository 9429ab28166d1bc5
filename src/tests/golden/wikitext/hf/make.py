"""Makes a small GPT-NeoX model as `transformers` saves it, with the logits that `transformers` computes from it.
Run `python make.py FOLDER` with PyTorch and `transformers` 4 or 5; the files need nothing else.

`expected.safetensors` holds `tokens` (batch, length) and `logits` (batch, length, vocabulary).
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

WIDTH, HEADS, LAYERS, VOCAB, LENGTH = 16, 2, 2, 256, 12


def model():
    config = GPTNeoXConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS, intermediate_size=2 * WIDTH,
        vocab_size=VOCAB, max_position_embeddings=LENGTH, rotary_pct=0.5, bos_token_id=0, eos_token_id=0)
    made = GPTNeoXForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # Large enough that every bias, norm and head shows in the logits.
        for name, weight in sorted(made.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator) * 0.4
            weight.copy_(noise + 1 if "norm.weight" in name else noise)
    return made


def main(folder):
    made = model()
    tokens = torch.randint(VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = made(tokens).logits
    made.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({"tokens": tokens, "logits": logits.contiguous()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
