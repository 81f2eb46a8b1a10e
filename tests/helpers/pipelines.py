"""Made-up pipelines for the tests of `verify`: rollouts of sound ones, and functions that each put one fault in.

A rollout is a mapping as `verify` reads them. A completion is drawn token by token from a fixed distribution over words
of which the last ends it, so its log-probabilities are those of the tokens exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import judged_claims
import numpy as np

from grposcope.core.run import Meta, Run, Segment, no_evaluations, no_groups
from grposcope.instruments.verify import read

Row = dict[str, Any]
Rows = list[Row]
END, PAD, VOCABULARY = 9, 0, 8
"""Id of the end of text, of padding, and how many words there are beside (ids 1 to 8)."""


@dataclass(frozen=True)
class Pipeline:
    """A sound pipeline. reward: "binary", "steps" (quarters), "real" or "two" functions. recipe: name of RECIPES."""

    seed: int = 0
    steps: int = 2
    prompts: int = 8
    group: int = 8
    reward: str = "binary"
    recipe: str = "grpo"
    stored: str = "float32"
    limit: int = 24
    masks_truncated: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What the trainer would write of it."""
        scale = {"grpo": "group", "batch": "batch", "dr_grpo": "none", "dapo": "group", "rloo": "none"}[self.recipe]
        made: dict[str, Any] = {
            "num_generations": self.group, "max_completion_length": self.limit, "temperature": 1.0,
            "mask_truncated_completions": self.masks_truncated, "ends": [END], "pad": PAD, "num_iterations": 1,
        }  # fmt: skip
        if self.recipe == "rloo":
            made |= {"baseline": "leave-one-out", "scale": "none"}
        else:
            made |= {"scale_rewards": scale}
        if self.reward == "two":
            made |= {"reward_weights": {"right": 1.0, "form": 0.5}}
        return made

    def rows(self) -> Rows:
        """Rollouts of all steps in the order in which they were drawn."""
        random = np.random.default_rng(self.seed)
        made: Rows = []
        for step in range(1, self.steps + 1):
            rows = [self._row(random, step, prompt) for prompt in range(self.prompts) for _ in range(self.group)]
            made += with_advantages(self, rows)
        return made

    def _row(self, random: np.random.Generator, step: int, prompt: int) -> Row:
        ids, logp = completion(random, self.limit)
        truncated = ids[-1] != END
        ability = 0.2 + 0.6 * ((prompt * 7 + step * 3) % 5) / 5
        rewards = self._rewards(random, ability)
        trained = not (truncated and self.masks_truncated)
        return {
            "step": step, "group": f"{step}-{prompt}", "prompt": f"problem {step} {prompt}",
            "prompt_ids": [5, 6, 1 + prompt % 8], "completion": " ".join(map(str, ids)), "completion_ids": ids,
            "mask": [int(trained)] * len(ids), "prompt_trained": [0, 0, 0],
            "sampling_logprobs": logp, "old_logprobs": logp, "logprobs": logp,
            **rewards, "truncated": truncated,
        }  # fmt: skip

    def _rewards(self, random: np.random.Generator, ability: float) -> Row:
        if self.reward == "two":
            right, form = float(random.random() < ability), float(random.integers(0, 4)) / 3
            return {"rewards": {"right": right, "form": form}, "reward": right + 0.5 * form}
        if self.reward == "real":
            return {"reward": float(np.float32(random.normal(ability)))}
        if self.reward == "steps":
            return {"reward": float(random.integers(0, 5)) / 4}
        return {"reward": float(random.random() < ability)}


def completion(random: np.random.Generator, limit: int) -> tuple[list[int], list[float]]:
    """Tokens, each word with 0.9/8 and the end with 0.1, and their log-probabilities."""
    ids: list[int] = []
    logp: list[float] = []
    while len(ids) < limit and (not ids or ids[-1] != END):
        ended = random.random() < 0.1
        ids.append(END if ended else int(random.integers(1, VOCABULARY + 1)))
        logp.append(math.log(0.1 if ended else 0.9 / VOCABULARY))
    return ids, logp


def advantages(pipeline: Pipeline, rewards: Sequence[float], groups: Sequence[Any], **other: Any) -> np.ndarray:
    """Advantages by the plain loop over groups in float32. other: another recipe, ddof, eps, or sign."""
    values = np.array(rewards, np.float32)
    recipe, ddof, eps = other.get("recipe", pipeline.recipe), other.get("ddof", 1), np.float32(other.get("eps", 1e-4))
    found = np.zeros(len(values), np.float32)
    for name in dict.fromkeys(groups):
        here = [place for place, group in enumerate(groups) if group == name]
        part = values[here]
        centred = part - part.mean(dtype=np.float32)
        if recipe == "rloo":
            centred = centred * np.float32(len(here) / max(len(here) - 1, 1))
        elif recipe in ("grpo", "dapo"):
            spread = part.std(ddof=ddof) if len(here) > ddof else np.float32(0)
            centred = centred / (np.float32(spread) + eps)
        found[here] = centred
    if recipe == "batch":
        found = found / (values.std(ddof=ddof) + eps)
    return found * np.float32(other.get("times", 1.0))


def with_advantages(pipeline: Pipeline, rows: Rows, rewards: Sequence[float] | None = None,
                    groups: Sequence[Any] | None = None, **other: Any) -> Rows:  # fmt: skip
    """The rows of one step with advantages, of other rewards, groups or another recipe where these are given."""
    made = advantages(
        pipeline, [row["reward"] for row in rows] if rewards is None else rewards,
        [row["group"] for row in rows] if groups is None else groups, **other,
    )  # fmt: skip
    return [{**row, "advantage": stored(float(value), pipeline.stored)} for row, value in zip(rows, made, strict=True)]


def stored(value: float, kind: str) -> float:
    """A number as a log keeps it: in float32, in bfloat16, or with four decimals."""
    if kind == "decimals":
        return round(value, 4)
    single = np.array([value], np.float32)
    if kind == "bfloat16":
        bits = single.view(np.uint32)
        single = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return float(single[0])


Fault = Callable[[Pipeline, Rows, np.random.Generator], Rows]
"""(pipeline, rows of one step, randomness) -> rows with the fault."""


def shuffled_in_group(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Rewards permuted among siblings before advantages are made."""
    rewards = np.array([row["reward"] for row in rows]).reshape(-1, pipeline.group)
    return with_advantages(pipeline, rows, np.array([random.permutation(part) for part in rewards]).ravel())


def shuffled_across(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Rewards permuted over the batch."""
    return with_advantages(pipeline, rows, random.permutation([row["reward"] for row in rows]))


def shifted(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Rewards shifted by one place in the batch."""
    return with_advantages(pipeline, rows, np.roll([row["reward"] for row in rows], 1))


def shifted_among_siblings(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Rewards shifted by one place in every group."""
    rewards = np.array([row["reward"] for row in rows]).reshape(-1, pipeline.group)
    return with_advantages(pipeline, rows, np.roll(rewards, 1, axis=1).ravel())


def of_batch(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Divided by the deviation of the batch instead of the group's."""
    return with_advantages(pipeline, rows, recipe="batch")


def other_ddof(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The deviation with ddof 0."""
    return with_advantages(pipeline, rows, ddof=0)


def other_epsilon(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """1e-6 added to the deviation."""
    return with_advantages(pipeline, rows, eps=1e-6)


def other_sign(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The opposite sign."""
    return with_advantages(pipeline, rows, times=-1.0)


def doubled(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Twice as large."""
    return with_advantages(pipeline, rows, times=2.0)


def split_groups(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Advantages of halves of the groups."""
    return with_advantages(pipeline, rows, groups=[place // (pipeline.group // 2) for place in range(len(rows))])


def interleaved_groups(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Groups taken across prompts."""
    return with_advantages(pipeline, rows, groups=[place % (len(rows) // pipeline.group) for place in range(len(rows))])


def unscaled(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Not divided by anything."""
    return with_advantages(pipeline, rows, recipe="dr_grpo")


def forgotten_weights(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The plain sum of two functions whose weights are 1 and 0.5."""
    return with_advantages(pipeline, rows, [sum(row["rewards"].values()) for row in rows])


def end_masked(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The token that ends a completion is not trained on."""
    return [{**row, "mask": [*row["mask"][:-1], 0]} if row["completion_ids"][-1] == END else row for row in rows]


def end_twice(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The end stands twice, and both are trained on."""
    return [longer(row, [END], 1) if row["completion_ids"][-1] == END else row for row in rows]


def padding_trained(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Padding up to the longest of the batch, with a mask of ones."""
    width = max(len(row["completion_ids"]) for row in rows)
    return [longer(row, [PAD] * (width - len(row["completion_ids"])), 1) for row in rows]


def off_by_one(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The mask is shifted by one to the right."""
    return [{**row, "mask": [0, *row["mask"][:-1]]} for row in rows]


def prompt_trained(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The mask covers prompt and completion, and is 1 on both."""
    return [{**row, "mask": [1] * len(row["prompt_ids"]) + row["mask"]} for row in rows]


def tool_trained(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """A tool wrote three tokens in the middle, and they are trained on."""
    return [with_tool(row, 1) for row in rows]


def with_tool(row: Row, trained: int) -> Row:
    """A rollout with a tool's answer after its first token."""
    made = dict(row)
    for name, value in (("completion_ids", 3), ("mask", trained), ("sampling_logprobs", 0.0), ("old_logprobs", 0.0),
                        ("logprobs", 0.0)):  # fmt: skip
        made[name] = [row[name][0], *[value] * 3, *row[name][1:]]
    made["tool_mask"] = [1, 0, 0, 0, *[1] * (len(row["mask"]) - 1)]
    return made


def truncated_trained(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Cut completions are trained on though the settings leave them out."""
    return [{**row, "mask": [1] * len(row["mask"])} for row in rows]


def longer(row: Row, ids: list[int], trained: int) -> Row:
    """A rollout with further tokens at its end."""
    further = {"completion_ids": ids, "mask": [trained] * len(ids)}
    zeros = [0.0] * len(ids)
    names = ("sampling_logprobs", "old_logprobs", "logprobs")
    return {**row, **{name: [*row[name], *more] for name, more in further.items()},
            **{name: [*row[name], *zeros] for name in names}}  # fmt: skip


def mixed_groups(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Group ids are those of the neighbour's place, so that groups have two prompts."""
    groups = np.roll([row["group"] for row in rows], 1)
    return [{**row, "group": str(group)} for row, group in zip(rows, groups, strict=True)]


def singletons(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Of one group a single rollout is left."""
    return rows[: -(pipeline.group - 1)]


def copied(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The second half of each group is a copy of the first, as where two processes have one seed."""
    half, made = pipeline.group // 2, []
    names = ("completion", "completion_ids", "mask", "sampling_logprobs", "old_logprobs", "logprobs", "truncated")
    for place, row in enumerate(rows):
        source = rows[place - half] if place % pipeline.group >= half else row
        made.append({**row, **{name: source[name] for name in names}})
    return made


def same_on_ranks(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The second half of the groups has the prompts of the first, as where two processes draw the same data."""
    half = len(rows) // 2
    return [{**row, "prompt": rows[place % half]["prompt"], "prompt_ids": rows[place % half]["prompt_ids"]}
            for place, row in enumerate(rows)]  # fmt: skip


def failures_as_zeros(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """Some rollouts time out and count as 0."""
    places = random.choice(len(rows), max(len(rows) // 8, 1), replace=False)
    made = [{**row, "error": "timeout", "reward": 0.0} if place in places else row for place, row in enumerate(rows)]
    for row in made:
        row.pop("rewards", None)
    return with_advantages(pipeline, made)


def of_function(rows: Sequence[Row]) -> Rows:
    """The rows with rewards that `graded` gives."""
    return [{**row, "reward": graded([row["prompt"]], [row["completion"]])[0]} for row in rows]


def graded(prompts: Sequence[Any], completions: Sequence[Any]) -> list[float]:
    """A reward function of the text alone."""
    return [float(sum(map(int, str(text).split())) % 7) / 6 for text in completions]


def by_order(prompts: Sequence[Any], completions: Sequence[Any]) -> list[float]:
    """A reward that depends on the place in the batch."""
    return [reward + 0.01 * (place % 2) for place, reward in enumerate(graded(prompts, completions))]


def log(rows: Rows, steps: int, **other: Any) -> Run:
    """A run whose log has the metrics of the rows and a linear learning rate; other: columns, or restart=step."""
    numbers = np.arange(1, steps + 1)
    table: dict[str, Any] = {"step": numbers.astype(float)}
    parts = {step: [row for row in rows if row["step"] == step] for step in numbers}
    for name in ("reward", "reward_std", "dead_fraction", "length", "truncated"):
        table[name] = np.array([metric(name, parts[step]) for step in numbers])
    random = np.random.default_rng(steps)
    table |= {"lr": 1e-5 * (1 - (numbers - 1) / steps), "grad_norm": np.exp(random.normal(0, 0.2, steps)),
              "epoch": numbers / steps}  # fmt: skip
    restart = other.pop("restart", None)
    table |= other
    segments = () if restart is None else tuple(
        Segment({name: column[here] for name, column in table.items()}, f"line {place}")
        for place, here in enumerate((numbers < restart, numbers >= restart))
    )  # fmt: skip
    return Run(Meta(Path("log"), "trl", "log", "finished"), {"settings": {}}, table, no_groups(), no_evaluations(),
               segments=segments)  # fmt: skip


def metric(name: str, rows: Rows) -> float:
    """A metric of a step by its definition."""
    if not rows:
        return math.nan
    groups = [
        np.array([row["reward"] for row in rows if row["group"] == group]) for group in {r["group"] for r in rows}
    ]
    if name == "reward_std":
        return float(np.mean([part.std(ddof=1) for part in groups]))
    if name == "dead_fraction":
        return float(np.mean([np.ptp(part) == 0 for part in groups]))
    values = {"reward": lambda row: row["reward"], "length": lambda row: len(row["completion_ids"]),
              "truncated": lambda row: row["truncated"]}[name]  # fmt: skip
    return float(np.mean([values(row) for row in rows]))


def with_fault(pipeline: Pipeline, fault: Fault, since: int = 1) -> Rows:
    """The rows of a pipeline with the fault in every step from `since` on."""
    random = np.random.default_rng(pipeline.seed + 1)
    rows = pipeline.rows()
    made: Rows = []
    for step in range(1, pipeline.steps + 1):
        part = [row for row in rows if row["step"] == step]
        made += fault(pipeline, part, random) if step >= since else part
    return made


def judged(
    rows: Rows, settings: dict[str, Any], run: Run | None = None, grader: Any = None
) -> dict[str, judged_claims.Judged]:
    """What becomes of each claim, by name."""
    evidence = read.of_rows(rows, settings)
    return judged_claims.of(replace(evidence, run=run, grader=grader))
