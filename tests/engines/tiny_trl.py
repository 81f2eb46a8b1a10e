"""A GRPOTrainer so small that a step takes a fraction of a second, unchanged but for what the tests hand it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def reward_letters(completions: list[str], **_: Any) -> list[float]:
    """Share of the letters that are an a: differs within groups."""
    return [text.count("a") / max(len(text), 1) for text in completions]


def reward_length(completions: list[str], **_: Any) -> list[float]:
    """A second one."""
    return [len(text) / 10 for text in completions]


def trainer(
    folder: Path,
    callbacks: list[Any],
    reward: Any = reward_letters,
    kind: Any = None,
    config: Any = None,
    ours: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A trainer of a random Llama of 20 k parameters on letters.

    kind, config: GRPOTrainer and GRPOConfig, or others. ours: arguments of the trainer. options: of its config.
    """
    import torch
    from datasets import Dataset
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<unk>", *"abcdefghijklm"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.decoder = decoders.Fuse()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    torch.manual_seed(0)
    given = {
        "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "per_device_train_batch_size": 8,
        "num_generations": 4, "max_completion_length": 5, "logging_steps": 1, "max_steps": 4, "save_strategy": "no",
        "num_completions_to_print": 0, "learning_rate": 1e-3,
    }  # fmt: skip
    if "num_generations_eval" not in GRPOConfig.__dataclass_fields__:  # before TRL 0.26, always as in training
        options.pop("num_generations_eval", None)
    return (kind or GRPOTrainer)(
        LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **shape, **special)),
        reward,
        args=(config or GRPOConfig)(str(folder), **{**given, **options}),
        train_dataset=Dataset.from_dict({"prompt": ["ab", "cdef", "gh", "klm"]}),
        eval_dataset=Dataset.from_dict({"prompt": ["ba", "fed"]}) if options.get("eval_strategy") else None,
        processing_class=tokens,
        callbacks=callbacks,
        **(ours or {}),
    )
