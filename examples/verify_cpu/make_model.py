"""Makes a small Llama with random weights, in Hugging Face's form, without any hub.

    python examples/verify_cpu/make_model.py FOLDER

56 million parameters in float32 (226 MB) and a word-level tokenizer. The same call writes the same
weights. What an engine does with a request does not depend on them: answers have a fixed length.
Needs PyTorch, transformers and tokenizers, which vLLM brings.
"""

from __future__ import annotations

import sys
from pathlib import Path

VOCABULARY = 32_000
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def make(folder: Path) -> None:
    """Writes configuration, weights and tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, bos_token_id=1, eos_token_id=2, dtype="float32")
    LlamaForCausalLM(config).save_pretrained(folder)
    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(3, VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
