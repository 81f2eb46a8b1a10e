"""Make `tiny`, the model that ships with the package: supervised warm start on worked sums.

    python -m grposcope.training.pretrain            (or: make tiny)

A Llama of 1.3 M parameters with one token per character learns from the worked solutions of a
pupil who forgets the carry or the borrow more often than not. It comes to answer about three
held-out problems in ten, so that GRPO has something to improve and something to improve on: its
likeliest answer to a sum with a carry is the wrong one. Same seed, same threads, same file.
"""

from __future__ import annotations

import argparse
import random
import re
import string
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from grposcope.policies.load import TINY, load
from grposcope.records import Estimate
from grposcope.runs.store import dumps
from grposcope.tasks.arithmetic import Arithmetic
from grposcope.tasks.base import Problem
from grposcope.training.evaluate import evaluate
from grposcope.training.sampler import Sampling

PAD, EOS = 0, 1
STEPS, SLIP = 1000, 0.85
"""Defaults that make the model that ships."""


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


def careless(expression: str, slip: float, rng: random.Random) -> list[str]:
    """A worked solution by a pupil who forgets the carry or the borrow with probability `slip`.

    The pupil goes on from the wrong value, so each such step is wrong and the steps after it are
    right. Slips after which a later result would fall below 0 are not made.
    """
    parts = re.findall(r"\d+|[+-]", expression)
    written = []
    while len(parts) > 1:
        first, operator, second = int(parts[0]), parts[1], int(parts[2])
        right = first + second if operator == "+" else first - second
        tens = first % 10 + second % 10 >= 10 if operator == "+" else first % 10 < second % 10
        slipped = right - 10 if operator == "+" else right + 10
        rest = [int(sign + number) for sign, number in zip(parts[3::2], parts[4::2], strict=True)]
        possible = min(accumulate(rest, initial=slipped)) >= 0
        result = slipped if tens and possible and rng.random() < slip else right
        parts = [str(result), *parts[3:]]
        written.append("".join(parts))
    return written


def worked(
    problems: Sequence[Problem], tokens: PreTrainedTokenizerFast, slip: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Ids (n, L) of prompt, worked solution and end token, and the labels, -100 except on the solution."""
    rng = random.Random(seed)
    prompts = [tokens(p.prompt).input_ids for p in problems]
    answers = [[*tokens("=".join(careless(p.prompt[:-1], slip, rng))).input_ids, EOS] for p in problems]
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


def pretrain(steps: int, seed: int, slip: float, width: int = 160, layers: int = 4) -> LlamaForCausalLM:
    """Supervised warm start: cross-entropy on worked solutions, batches of 128, AdamW, one-cycle schedule."""
    torch.manual_seed(seed)
    tokens = tokenizer()
    policy = model(len(tokens), width, layers)
    ids, labels = worked([*Arithmetic().problems("train")] * 4, tokens, slip, seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1, pct_start=0.1)
    progress = tqdm(batches(ids, labels, 128, steps, random.Random(seed)), total=steps, desc="warm start", unit="step")
    for inputs, targets in progress:
        loss = policy(input_ids=inputs, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}", refresh=False)
    return policy.eval()


def accuracy(folder: Path, temperature: float) -> Estimate:
    """Held-out pass@1 of a saved model on the default sums."""
    task, sampling = Arithmetic(), Sampling(Arithmetic().max_tokens, temperature)
    stream = torch.Generator().manual_seed(0)
    return evaluate(load(str(folder)), task, task.problems("heldout"), 1, sampling, stream)["pass@1"]


def main() -> None:
    """Make the model, save it, and print what it can do as JSON."""
    flags = argparse.ArgumentParser(description="Make the model `tiny` by a supervised warm start.")
    flags.add_argument("--out", type=Path, default=TINY, help="model folder to write (default: the package's own)")
    flags.add_argument("--steps", type=int, default=STEPS, help=f"optimiser steps of 128 solutions (default: {STEPS})")
    flags.add_argument("--slip", type=float, default=SLIP, help=f"chance that a carry is forgotten (default: {SLIP})")
    flags.add_argument("--seed", type=int, default=0, help="seed (default: 0)")
    flags.add_argument("--width", type=int, default=160, help="hidden units, a multiple of 32 (default: 160)")
    flags.add_argument("--layers", type=int, default=4, help="layers (default: 4)")
    flags.add_argument("--threads", type=int, default=2, help="CPU threads, part of what fixes the result (default: 2)")
    given = flags.parse_args()
    torch.set_num_threads(given.threads)
    logging.disable_progress_bar()
    policy = pretrain(given.steps, given.seed, given.slip, given.width, given.layers)
    policy.save_pretrained(given.out)
    tokenizer().save_pretrained(given.out)
    sampled, greedy = accuracy(given.out, 1.0), accuracy(given.out, 0.0)
    print(dumps({"model": str(given.out), "parameters": policy.num_parameters(), "pass@1": sampled, "greedy": greedy}))


if __name__ == "__main__":
    main()
