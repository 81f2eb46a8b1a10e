"""The rollout as a type, whoever drew it or wrote it down: one row of declared columns, and rows that belong together.

Readers of files (`logs.read_rollouts`), training loops and probes make rows; claims, answers and the viewer take them.
Batches of tensors of the training loop are `lab.rollout_batch.RolloutBatch`.

T: tokens of the completion, with those of tools and environments. S: tokens of the prompt. H: turns of the policy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Text = str | list[dict[str, Any]]
"""A text, or a conversation as a list of messages."""

STOPS = ("eos", "length", "turns", "tool", "environment", "stop", "error", "aborted")
"""Reasons for which a rollout ends, of `Rollout.stop`: the policy's own end of text; a limit on tokens; a limit on
turns; a call of a tool that nobody answered; the end of the episode; a stop string; a failure; taken back."""


_REPLIES = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_FAILED = re.compile(
    r"""\s*[\[({<"'`*#]*\s*(?:(?:tool|execution|runtime|api|unknown|request|command|http)\s*)*
    (?:(?:error|exception|traceback|time[ -]?out)\b|timed\s+out|failed\s+to\b|(?:internal\s+)?server\s+error
    |connection\s+(?:refused|reset|timed)|service\s+unavailable|rate\s+limit
    |[45]\d\d\s+[a-z ]*(?:error|unavailable))""",
    re.IGNORECASE | re.VERBOSE,
)
"""Answers between tags in a message of a user, and how the answer of a tool begins that failed."""


MESSAGES = "messages"
"""Column in which a completion that is told as one text keeps its messages."""


@dataclass(frozen=True)
class Rollout:
    """One rollout. What was not recorded is None, NaN, or empty; 0 and False are values.

    where           file and line, or batch and place, for messages
    step            the optimiser step that trained on it; 0 where it is not known
    group           what tells its siblings of the step apart from others: `logs.rollout_columns` says which column
    prompt          what the policy was given, a text or messages
    completion      what followed: a text or messages, those of tools and environments among them
    prompt_ids      (S,) tokens without padding
    completion_ids  (T,) tokens without padding
    mask            (T,) tokens with a weight in the loss
    sampler         (T,) log-probabilities in nats under what drew it, at its temperature; NaN on tokens not drawn
    old             (T,) those of the trainer's weights when it was drawn
    current         (T,) those of the weights that the loss was taken at
    reference       (T,) those of the policy that the KL term is to
    loss_weights    (T,) ∂L/∂log π as the backward pass began from it; 0 for a rollout that no pass took
    micro_batch     number of the micro-batch that the loss took it in
    last, last_weights, last_step, last_part   `current`, `loss_weights`, step and `micro_batch` of the last update that
                    took it, where that was a later one than the batch's first
    rewards         by function, before weights
    reward          the one that was trained on
    advantages      (T,), or (1,) where all tokens have one
    truncated       whether a limit of length cut it
    version         of the sampler's weights: optimiser steps that made them
    environment     name of the environment or data set that it is of
    failed          what went wrong while it was drawn or graded
    dropped         why it was left out of training
    written         (T,) False on tokens that a tool or environment wrote
    prompt_trained  (S,) tokens of the prompt with a weight in the loss
    named           whether `group` is an id of the pipeline's own, and not made of the prompt
    columns         further values that a reward function may take, such as the answer

    attended        (T,) tokens that later ones may attend to; None: all. A hole of `mask` is none of `attended`: the
                    policy reads what a tool wrote without being trained on it
    turns           (T,) index from 0 of the turn that each token is of, what answers a turn being of it; -1 for none
    turn_rewards    (H,) the reward that each turn had by itself, NaN where it had none
    stop            why it ended, one of STOPS, or the trainer's own word where that is none of them
    anchors         (H,) a key of the state before each turn; turns of a group with one key began in one state
    version_by_turn (H,) version of the weights that drew each turn
    trajectory      what tells its trajectory from others of the step, where one may be several rows; empty: it is one
    turn            the first turn of its trajectory that it has, of a row that is part of one; None where none is said
    pieces          rows of training that it was, where it was put together of several (`core.trajectories`)

    problem         short name of its prompt, to be shown
    index           its place in the group
    tokens          (T,) its tokens as texts
    entropy         (T,) in nats, of the distributions that its tokens were drawn from
    length          tokens that the policy wrote, where that is known without them
    turns_taken     turns that the policy took, where that is known without tokens or messages
    calls_made      calls of tools, where that is known without messages
    parent          of a leaf of a tree: the index in the group of the rollout that it branched from
    shared          how many of its first tokens are those of `parent`, or of the rollout that it continues
    continuations   what else the policy wrote from places inside it: rollouts of what follows `shared` tokens
    measures        (T,) each, what instruments measured of its tokens, by name
    """

    where: str = ""
    step: int = 0
    group: str | None = None
    prompt: Text | None = None
    completion: Text | None = None
    prompt_ids: Ints | None = None
    completion_ids: Ints | None = None
    mask: Bools | None = None
    sampler: Floats | None = None
    old: Floats | None = None
    current: Floats | None = None
    reference: Floats | None = None
    loss_weights: Floats | None = None
    micro_batch: int = 0
    rewards: Mapping[str, float] = field(default_factory=dict)
    reward: float = math.nan
    advantages: Floats | None = None
    truncated: bool | None = None
    version: float = math.nan
    environment: str = ""
    failed: str = ""
    dropped: str = ""
    written: Bools | None = None
    prompt_trained: Bools | None = None
    named: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)
    last: Floats | None = None
    last_weights: Floats | None = None
    last_step: int = 0
    last_part: int = 0
    attended: Bools | None = None
    turns: Ints | None = None
    turn_rewards: Floats | None = None
    stop: str = ""
    anchors: tuple[str, ...] = ()
    version_by_turn: Floats | None = None
    trajectory: str = ""
    turn: int | None = None
    pieces: int = 1
    problem: str = ""
    index: int | None = None
    tokens: tuple[str, ...] = ()
    entropy: Floats | None = None
    length: float = math.nan
    turns_taken: int | None = None
    calls_made: int | None = None
    parent: int | None = None
    shared: int = 0
    continuations: tuple[Rollout, ...] = ()
    measures: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def size(self) -> float:
        """Tokens that the policy wrote; characters of the completion where its tokens are not known, else NaN."""
        if not math.isnan(self.length):
            return self.length
        if self.written is not None:
            return float(self.written.sum())
        tokens = next((own for own in (self.completion_ids, self.mask, self.sampler) if own is not None), None)
        if tokens is not None:
            return float(len(tokens))
        return math.nan if self.completion is None else float(len(plain_text(self.completion)))

    @property
    def turn_count(self) -> int | None:
        """Turns that the policy took: of `turns`, else the messages of the assistant; None where neither is there."""
        if self.turns_taken is not None:
            return self.turns_taken
        if self.turns is not None:
            return int(self.turns.max()) + 1 if len(self.turns) else 0
        if isinstance(self.completion, list):
            return sum(message.get("role") == "assistant" for message in self.messages)
        return None

    @property
    def calls(self) -> int | None:
        """Calls of tools in the messages of the assistant; None where neither they nor their number is known."""
        if not isinstance(self.completion, list):
            return self.calls_made
        calls = (message.get("tool_calls") for message in self.messages)
        return sum(len(own) for own in calls if isinstance(own, Sequence) and not isinstance(own, str))

    @property
    def failed_replies(self) -> list[bool]:
        """For each answer of a tool in the messages whether it reads as an error; empty where there is none."""
        answers: list[str] = []
        for message in self.messages:
            text = plain_text([message])
            if message.get("role") in ("tool", "function", "ipython"):
                answers.append(text)
            elif message.get("role") != "assistant":
                answers += _REPLIES.findall(text)
        return [_FAILED.match(answer) is not None for answer in answers]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of a completion that has them; what is none among them is passed over."""
        said: Any = self.completion
        return [message for message in said if isinstance(message, dict)] if isinstance(said, list) else []


@dataclass(frozen=True)
class Rollouts(Sequence[Rollout]):
    """Rollouts in the order in which they were drawn or written.

    engine: the trainer that wrote them, a name of `logs.trainers.TRAINERS`; empty if it is not known. path: where they
    lie. weights: of the reward functions, where `reward` is the weighted sum of `rewards`. notes: what was assumed or
    left out, a sentence each.
    """

    rows: tuple[Rollout, ...] = ()
    engine: str = ""
    path: Path | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Rollout: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Rollout, ...]: ...
    def __getitem__(self, index: int | slice) -> Rollout | tuple[Rollout, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Rollouts: {len(self.rows):,} in {len(self.groups):,} groups>"

    @property
    def step(self) -> int:
        """The step of the first; 0 for none."""
        return self.rows[0].step if self.rows else 0

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the reward functions, in order of appearance."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.rewards))

    @property
    def group_rewards(self) -> Floats:
        """Rewards (P, G) of groups of one size, in their order."""
        return np.array([[self.rows[index].reward for index in places] for places in self.groups.values()], np.float64)

    @cached_property
    def steps(self) -> Mapping[int, tuple[int, ...]]:
        """Step -> the places of its rollouts, in order of the steps."""
        places: dict[int, list[int]] = {}
        for index, row in enumerate(self.rows):
            places.setdefault(row.step, []).append(index)
        return {step: tuple(places[step]) for step in sorted(places)}

    @cached_property
    def groups(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """Step and group -> the places of its rollouts; those whose group is not known are left out."""
        places: dict[tuple[int, str], list[int]] = {}
        for index, row in enumerate(self.rows):
            if row.group is not None:
                places.setdefault((row.step, row.group), []).append(index)
        return {key: tuple(members) for key, members in places.items()}


def plain_text(text: Text) -> str:
    """A text, or the contents of a conversation, a line each."""
    if isinstance(text, str):
        return text
    return "\n".join(content for message in text if (content := _content(message.get("content"))))


def _content(value: Any) -> str:
    if isinstance(value, list):  # segments, of which those of text count
        return "".join(str(segment.get("text", "")) for segment in value if isinstance(segment, dict))
    return "" if value is None else str(value)


def turns_of(written: Bools) -> Ints:
    """The turn (T,) of each token: a turn begins where the policy writes after a tool or environment, or at the start.

    -1 for what stands before the first token of the policy.
    """
    begins = written & ~np.concatenate([[False], written[:-1]])
    return np.asarray(np.cumsum(begins) - 1, np.int64)
