"""A GRPOTrainer of TRL on a random Llama of two layers and sixteen tokens, whose generation a test replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


def small_trainer(
    folder: Path,
    texts: Sequence[str],
    reward: Any,
    completions: Callable[[list[str], Any], dict[str, Any]],
    **options: Any,
) -> Any:
    """The trainer.

    reward: a function or a list of them. texts: prompts of the letters a to m. completions: TRL's `rollout_func`.
    options: of GRPOConfig.
    """
    from datasets import Dataset
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *"abcdefghijklm"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.3,  # far from uniform
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    return GRPOTrainer(
        LlamaForCausalLM(config),
        reward,
        args=GRPOConfig(str(folder), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True, **options),
        train_dataset=Dataset.from_dict({"prompt": list(texts)}),
        processing_class=tokens,
        rollout_func=completions,
    )
