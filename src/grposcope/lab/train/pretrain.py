"""Make `tiny` and `tables`, the models that ship with the package: supervised warm starts.

    python -m grposcope.lab.train.pretrain                             tiny (make tiny makes both)
    python -m grposcope.lab.train.pretrain --sums 8 --out models/eight  for sums of eight operations
    python -m grposcope.lab.train.pretrain --table                     tables, for the task hidden_table; 20 s
    python -m grposcope.lab.train.pretrain --table 150 --out models/weak  a weak one, whose calls rarely pay

A Llama of 1.3 M parameters with one token per character imitates the worked solutions of a pupil
who forgets the carry or the borrow more often than not, and of a still more careless one. It comes
to answer about three held-out problems in ten, so that GRPO has something to improve and something
to improve on: its likeliest answer to a sum with a carry is the wrong one. Same seed, same
threads, same processor: same file. For sums of another length the pupil makes as many errors per sum.

`tables`, of 0.1 M parameters, imitates episodes of the hidden table in which a letter may not be asked for and a right
sum may be given as another, so that it is right four times in ten. After 150 batches it asks as often and can add
little: then questions cost more than they bring.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps
from grposcope.lab.policies.load import TABLES, TINY, load
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Problem, Task
from grposcope.lab.tasks.hidden_table import HiddenTable

PAD, EOS = 0, 1

OPERATIONS = 3
"""Operations of the sums on which the model that ships is made."""


@dataclass(frozen=True)
class _Lesson:
    """Worked solutions to imitate for `steps` batches of 128, at a one-cycle rate that peaks at `rate`.

    slip: chance that a carry or borrow is forgotten where there is one; in episodes of the hidden table, that a letter
    that is needed is not asked for, so that its number is guessed. stray: chance that a result is one too large; there,
    that a right sum is given as another.
    """

    steps: int
    rate: float
    slip: float
    stray: float


LESSONS = (_Lesson(1000, 3e-3, slip=0.65, stray=0.0), _Lesson(150, 1e-3, slip=0.8, stray=0.1))
"""Lessons of the model that ships: one long enough to learn sums at all, then one by a more careless pupil."""


def _tokenizer() -> PreTrainedTokenizerFast:
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
        model_input_names=["input_ids", "attention_mask"],
    )


def _model(vocabulary: int, width: int = 160, layers: int = 4) -> LlamaForCausalLM:
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


def _careless(expression: str, lesson: _Lesson, rng: random.Random) -> list[str]:
    """A worked solution with the errors of a lesson's pupil.

    The pupil goes on from the wrong value, so a step with a slip is wrong and the next may be right
    again. Slips after which a later result would fall below 0 are not made.
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
        result = slipped if tens and possible and rng.random() < lesson.slip else right
        if lesson.stray and rng.random() < lesson.stray:
            result += 1
        parts = [str(result), *parts[3:]]
        written.append("".join(parts))
    return written


def _worked(
    problems: Sequence[Problem], tokens: PreTrainedTokenizerFast, lesson: _Lesson, seed: int
) -> tuple[Tensor, Tensor]:
    """Ids (n, L) of prompt, worked solution and end token, and the labels, -100 except on the solution."""
    rng = random.Random(seed)
    prompts = [tokens(p.prompt).input_ids for p in problems]
    answers = [[*tokens("=".join(_careless(p.prompt[:-1], lesson, rng))).input_ids, EOS] for p in problems]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.full((len(problems), width), PAD)
    labels = torch.full((len(problems), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    return ids, labels


def _batches(ids: Tensor, labels: Tensor, size: int, steps: int, rng: random.Random) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` random batches, cut to their longest row."""
    for _ in range(steps):
        rows = torch.tensor(rng.sample(range(len(ids)), size))
        longest = int((ids[rows] != PAD).sum(-1).max())
        yield ids[rows, :longest], labels[rows, :longest]


def _pretrain(
    seed: int,
    width: int = 160,
    layers: int = 4,
    lessons: Sequence[_Lesson] = LESSONS,
    sums: int = OPERATIONS,
) -> LlamaForCausalLM:
    """A fresh model taken through the lessons in order. sums: operations of a sum."""
    torch.manual_seed(seed)
    policy = _model(len(_tokenizer()), width, layers)
    for lesson in _lessons_for(sums, lessons):
        _imitate(policy, lesson, seed, sums)
    return policy.eval()


def _lessons_for(sums: int, lessons: Sequence[_Lesson] = LESSONS) -> tuple[_Lesson, ...]:
    """The lessons with as many errors in sums of `sums` operations as they have in those of the model that ships."""
    share = OPERATIONS / sums
    return tuple(
        replace(lesson, slip=min(lesson.slip * share, 1.0), stray=min(lesson.stray * share, 1.0)) for lesson in lessons
    )


def _imitate(policy: LlamaForCausalLM, lesson: _Lesson, seed: int, sums: int = OPERATIONS) -> None:
    """One lesson: cross-entropy on its worked solutions, four to a problem, with AdamW."""
    ids, labels = _worked([*Arithmetic(sums).problems("train")] * 4, _tokenizer(), lesson, seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lesson.rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lesson.rate, total_steps=lesson.steps + 1, pct_start=0.1)
    drawn = _batches(ids, labels, 128, lesson.steps, random.Random(seed))
    progress = tqdm(drawn, total=lesson.steps, desc=f"slip {lesson.slip:.2f} stray {lesson.stray:.2f}", unit="step")
    for inputs, targets in progress:
        loss = policy(input_ids=inputs, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}", refresh=False)


TABLE_WIDTH, TABLE_LAYERS = 64, 2
"""Size of the model `tables`."""


TABLE_LESSON = _Lesson(400, 4e-3, slip=0.15, stray=0.3)
"""The lesson of the model `tables`."""


def _episodes(task: HiddenTable, tokens: PreTrainedTokenizerFast, lesson: _Lesson, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (n, L) of prompts and episodes, eight to a problem, and the labels, -100 except on what the policy says."""
    rng = random.Random(seed)
    rows: list[tuple[list[int], list[int]]] = []
    for problem in [*task.problems("train")] * 8:
        state = task.start(problem, rng.randrange(2**31))
        ids = list(tokens(problem.prompt).input_ids)
        labels = [-100] * len(ids)
        total = 0
        for letter in problem.prompt.rstrip("=").split("+"):
            if rng.random() < lesson.slip:
                total += rng.randrange(10)
                continue
            said, heard = (tokens(text).input_ids for text in (f"?{letter};", str(state.numbers[letter])))
            ids, labels = [*ids, *said, *heard], [*labels, *said, *[-100] * len(heard)]
            total += state.numbers[letter]
        total += rng.choice((-1, 1, 2)) if rng.random() < lesson.stray else 0
        said = tokens(f"{max(total, 0)};").input_ids
        rows.append(([*ids, *said], [*labels, *said]))
    width = max(len(ids) for ids, _ in rows)
    return (
        torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids, _ in rows]),
        torch.tensor([[*labels, *[-100] * (width - len(labels))] for _, labels in rows]),
    )


def _imitate_tables(policy: LlamaForCausalLM, lesson: _Lesson, seed: int) -> None:
    """Cross-entropy on episodes of the hidden table, as far as the policy speaks in them, with AdamW."""
    ids, labels = _episodes(HiddenTable(), _tokenizer(), lesson, seed)
    policy.train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lesson.rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lesson.rate, total_steps=lesson.steps + 1, pct_start=0.1)
    for inputs, targets in _batches(ids, labels, 128, lesson.steps, random.Random(seed)):
        loss = policy(input_ids=inputs, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    policy.eval()


def _accuracy(folder: Path, temperature: float, sums: int = OPERATIONS) -> Estimate:
    """Held-out pass@1 of a saved model on sums of `sums` operations."""
    return _held_out(folder, temperature, Arithmetic(sums), "pass@1")


def _held_out(folder: Path, temperature: float, task: Task, metric: str) -> Estimate:
    """A held-out metric of a saved model on a task, from one completion or episode of each problem."""
    stream = torch.Generator().manual_seed(0)
    sampling = Sampling(task.max_tokens, temperature)
    return evaluate(load(str(folder)), task, task.problems("heldout"), 1, sampling, stream)[metric]


def _save_tokenizer(folder: Path) -> None:
    """Write the tokenizer under the name of its class that transformers 4 knows too."""
    _tokenizer().save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    content = {name: value for name, value in json.loads(file.read_text()).items() if name != "backend"}
    file.write_text(json.dumps({**content, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")


def _main() -> None:
    """Make the model, save it, and print what it can do as JSON."""
    flags = argparse.ArgumentParser(description="Make the model tiny by a supervised warm start.")
    flags.add_argument("--out", type=Path, help="model folder to write (default: the package's own)")
    flags.add_argument("--seed", type=int, default=0, help="seed (default: 0)")
    flags.add_argument("--width", type=int, help="hidden units, a multiple of 32 (default: 160, of --table 64)")
    flags.add_argument("--layers", type=int, help="layers (default: 4, of --table 2)")
    flags.add_argument("--sums", type=int, default=OPERATIONS, help=f"operations of a sum (default: {OPERATIONS})")
    flags.add_argument("--table", type=int, nargs="?", const=TABLE_LESSON.steps, metavar="N",
                       help=f"imitate N batches of hidden tables (default: {TABLE_LESSON.steps})")  # fmt: skip
    flags.add_argument("--threads", type=int, default=2, help="CPU threads, part of what fixes the result (default: 2)")
    given = flags.parse_args()
    torch.set_num_threads(given.threads)
    logging.disable_progress_bar()
    if given.sums != OPERATIONS and given.out is None:
        flags.error("the model that ships does sums of 3 operations; give --out with another folder")
    if given.table not in (None, TABLE_LESSON.steps) and given.out is None:
        flags.error(f"the model that ships saw {TABLE_LESSON.steps} batches; give --out with another folder")
    if given.table is not None:
        torch.manual_seed(given.seed)
        policy = _model(len(_tokenizer()), given.width or TABLE_WIDTH, given.layers or TABLE_LAYERS)
        _imitate_tables(policy, replace(TABLE_LESSON, steps=given.table), given.seed)
    else:
        policy = _pretrain(given.seed, given.width or 160, given.layers or 4, sums=given.sums)
    out = given.out or (TINY if given.table is None else TABLES)
    policy.save_pretrained(out)
    _save_tokenizer(out)
    task: Task = Arithmetic(given.sums) if given.table is None else HiddenTable()
    sampled, greedy = (_held_out(out, temperature, task, "pass@1") for temperature in (1.0, 0.0))
    print(dumps({"model": str(out), "parameters": policy.num_parameters(), "pass@1": sampled, "greedy": greedy}))


if __name__ == "__main__":
    _main()
