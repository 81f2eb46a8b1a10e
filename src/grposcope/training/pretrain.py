"""Make `tiny`, the model that ships with the package: supervised warm start on worked sums.

    python -m grposcope.training.pretrain            (or: make tiny)

A Llama of 1.3 M parameters with one token per character learns from worked solutions until it
answers about three held-out problems in ten, and stops there: GRPO has something to improve and
something to improve on. Same seed, same threads, same file.
"""

from __future__ import annotations

import argparse
import random
import string
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grposcope.policies.load import TINY, load
from grposcope.tasks.arithmetic import Arithmetic, solution
from grposcope.tasks.base import Problem

PAD, EOS, UNKNOWN = 0, 1, 2


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character or newline."""
    characters = string.digits + string.ascii_letters + string.punctuation + " \n"
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *characters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def model(vocabulary: int, width: int = 160, layers: int = 4) -> LlamaForCausalLM:
    """A small Llama with random weights: `width` hidden units in heads of 32."""
    heads = width // 32
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=int(2.8 * width),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def worked(problems: Sequence[Problem], tokens: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """Ids (n, L) of prompt, worked solution and end token, and the labels, -100 except on the solution."""
    prompts = [tokens(p.prompt).input_ids for p in problems]
    answers = [[*tokens("=".join(solution(p.prompt[:-1]))).input_ids, EOS] for p in problems]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(problems), width), PAD)
    labels = torch.full((len(problems), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    return ids, labels


def batches(ids: Tensor, labels: Tensor, size: int, steps: int, rng: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` random batches, cut to their longest row."""
    for _ in range(steps):
        rows = torch.tensor(rng.sample(range(len(ids)), size))
        longest = int((ids[rows] != PAD).sum(-1).max())
        yield ids[rows, :longest], labels[rows, :longest]


def pretrain(steps: int, seed: int, width: int = 160, layers: int = 4, size: int = 128, peak: float = 3e-3) -> LlamaForCausalLM:
    """Supervised warm start: cross-entropy on the worked solutions, AdamW with a cosine schedule."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    tokens = tokenizer()
    policy = model(len(tokens), width, layers)
    ids, labels = worked(Arithmetic().problems("train"), tokens)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=steps + 1, pct_start=0.1)
    progress = tqdm(batches(ids, labels, size, steps, rng), total=steps, desc="warm start", unit="step")
    for inputs, targets in progress:
        loss = policy(input_ids=inputs, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}", refresh=False)
    return policy
