"""Rollouts of several turns: the policy writes up to the end of a turn, the environment of the task answers.

What the environment writes is appended to what the policy reads next, and has no weight in the loss. All rollouts take
a turn together, and each is read anew with all that came before. An environment that raises or hangs fails its rollout
alone, by the policy of `lab.tasks.faults`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.core.rollouts import STOPS
from grposcope.lab.policies import Policy, encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import Completions, sample
from grposcope.lab.tasks.base import Problem, Task, Turn, number, raised_in
from grposcope.lab.tasks.faults import VALUES, ErrorPolicy
from grposcope.lab.tasks.limits import OutOfTime, time_limit


@dataclass
class _Episode:
    """A rollout on its way: its state, what it holds so far, and how it ended, "" while it goes on."""

    problem: Problem
    prompt: list[int]
    state: Any
    tokens: list[int] = field(default_factory=list)
    drawn: list[bool] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    stop: str = ""
    failed: str = ""
    before: list[tuple[Any, int]] = field(default_factory=list)
    """Of each turn from the second on: the state before it, and how many tokens there were."""


@dataclass(frozen=True)
class _Trajectories:
    """Rollouts of several turns.

    completions: with the environment's tokens in them, which `mask` leaves out. turns (B, T): the turn of each token,
    -1 on padding. turn_rewards, anchors: of each rollout, one for each turn. stops (B,): of `core.rollouts.STOPS`.
    rewards (B,): sums over turns, and what the error policy gives to a rollout that failed. failed: what went wrong, a
    clause for each rollout of which the environment failed. values: of each rollout, mean returns of continuations from
    the state before each turn but the first; further: tokens that these took.
    """

    completions: Completions
    turns: Tensor
    turn_rewards: tuple[tuple[float, ...], ...]
    anchors: tuple[tuple[str, ...], ...]
    stops: tuple[str, ...]
    rewards: tuple[float, ...]
    failed: tuple[str, ...]
    values: tuple[tuple[float, ...], ...] = ()
    further: int = 0

    def annotations(self) -> dict[str, Tensor]:
        """Token annotations: turn of each token, number of the state before it, reward of a turn on its last token."""
        mask = self.completions.mask
        paid, ends = torch.zeros(mask.shape, dtype=torch.float64), torch.zeros_like(mask)
        states = torch.zeros_like(self.turns)
        for row, anchors in enumerate(self.anchors):
            for turn, anchor in enumerate(anchors):
                states[row, self.turns[row] == turn] = _state_number(anchor)
        for row, rewards in enumerate(self.turn_rewards):
            for turn, reward in enumerate(rewards):
                own = ((self.turns[row] == turn) & mask[row]).nonzero()
                if len(own):
                    paid[row, int(own[-1])], ends[row, int(own[-1])] = reward, True
        annotations = {"turns": self.turns, "states": states, "step_rewards": paid.to(mask.device), "step_ends": ends}
        if not self.values:
            return annotations
        valued = torch.full(mask.shape, torch.nan, dtype=torch.float64)
        for row, values in enumerate(self.values):
            for turn, value in enumerate(values, 1):
                valued[row, (self.turns[row] == turn).cpu()] = value
        return annotations | {"turn_values": valued.to(mask.device)}


def sample_turns(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    group: int,
    settings: DrawSettings,
    stream: torch.Generator,
) -> _Trajectories:
    """`group` rollouts of each problem, prompt-major; those of a group begin in one state.

    settings.sampling.max_tokens: tokens of a rollout, those of the environment among them. settings.reward_timeout: how
    long the environment may take for a turn. The continuations that give `turn_values` are drawn after the rollouts,
    which are the same without them. UserError where `turn_end` is no single token, where a state cannot be copied, and
    under reward_errors "fail" for an environment that raises, hangs or returns something else.
    """
    sampling, k = settings.sampling, settings.turn_values
    end = _end_token(policy, task)
    ids, mask = encode(policy, [problem.prompt for problem in problems], task.instruction, sampling.max_tokens)
    seeds = torch.randint(2**31, (len(problems),), generator=stream, device=stream.device).tolist()
    episodes = [
        _Episode(problem, ids[row][mask[row]].tolist(), _started(task, problem, seeds[row]))
        for row, problem in enumerate(problems)
        for _ in range(group)
    ]
    ends = torch.cat([policy.eos, policy.eos.new_tensor([end])])
    for turn in range(task.max_turns):
        live = [own for own in episodes if not own.stop]
        if not live:
            break
        if k and turn:
            for own in live:
                own.before.append((_branched(task, own.state, 0), len(own.tokens)))
        _take_turn(policy, task, live, turn, settings, ends, stream)
    for own in episodes:
        own.stop = own.stop or "turns"
    made = _collected(episodes, policy, settings.reward_errors)
    if not k:
        return made
    values, further = _continued(policy, task, episodes, settings, ends, stream)
    return replace(made, values=values, further=further)


def _continued(
    policy: Policy,
    task: Task,
    episodes: Sequence[_Episode],
    settings: DrawSettings,
    ends: Tensor,
    stream: torch.Generator,
) -> tuple[tuple[tuple[float, ...], ...], int]:
    """Of each episode mean returns of k continuations from the state before each turn but the first, and tokens."""
    k, errors = settings.turn_values, settings.reward_errors
    begun: list[tuple[_Episode, int]] = []
    for own in episodes:
        for turn, (state, count) in enumerate(own.before, 1):
            seeds = torch.randint(2**31, (k,), generator=stream, device=stream.device).tolist()
            for seed in seeds:
                again = _Episode(own.problem, own.prompt, _branched(task, state, seed), own.tokens[:count])
                begun.append((again, turn))
    for turn in range(1, task.max_turns):
        live = [own for own, start in begun if start <= turn and not own.stop]
        if live:
            _take_turn(policy, task, live, turn, settings, ends, stream)
    returns = [VALUES[errors] if own.failed and errors != "fail" else math.fsum(own.rewards) for own, _ in begun]
    means = iter(_mean(returns[start : start + k]) for start in range(0, len(returns), k))
    values = tuple(tuple(next(means) for _ in own.before) for own in episodes)
    return values, sum(sum(own.drawn) for own, _ in begun)


def _mean(values: Sequence[float]) -> float:
    """Mean of those that are numbers; NaN for none."""
    told = [value for value in values if value == value]
    return math.fsum(told) / len(told) if told else math.nan


def _branched(task: Task, state: Any, seed: int) -> Any:
    try:
        return task.branch(state, seed)
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the state of task {task.name} cannot be copied: {type(error).__name__}: {error}{raised_in(error)}; write "
            "its method branch, or use credit that needs no continuations"
        ) from error


def _state_number(anchor: str) -> int:
    """A number of a state, equal where anchors are; 0 for the anchor "", of a state that nobody knows."""
    return int.from_bytes(hashlib.sha256(anchor.encode()).digest()[:7], "big") + 1 if anchor else 0


def of_turns(rollouts: RolloutBatch) -> dict[str, float]:
    """Metrics of a batch: turns, what ended the rollouts, tokens of the environment; empty where there are no turns."""
    turns, stops = rollouts.token_annotations.get("turns"), rollouts.stops
    drawn = rollouts.mask.any(-1)
    if turns is None or stops is None or not drawn.any():
        return {}
    taken = turns_taken(rollouts)[drawn].double()
    heard = ((turns >= 0) & ~rollouts.mask & drawn[:, None]).sum(-1)[drawn].double()
    ended = {why: float((stops == STOPS.index(why)).double().mean()) for why in ("environment", "turns", "error")}
    return {
        "agent/turns": float(taken.mean()),
        "agent/turns_max": float(taken.max()),
        "agent/environment_tokens": float(heard.mean()),
        "agent/stop_environment": ended["environment"],
        "agent/stop_turns": ended["turns"],
        "agent/errors": ended["error"],
    }


def turns_taken(rollouts: RolloutBatch) -> Tensor:
    """How many turns each rollout took, (B,)."""
    return rollouts.token_annotations["turns"].where(rollouts.mask, -1).amax(-1) + 1


def _end_token(policy: Policy, task: Task) -> int:
    ids = policy.tokenizer(task.turn_end, add_special_tokens=False).input_ids if task.turn_end else []
    if len(ids) != 1 or ids[0] == policy.tokenizer.unk_token_id:
        raise UserError(
            f"the task {task.name} ends turns with {task.turn_end!r}, which is not one token of {policy.name}; use a "
            "model whose tokenizer has it as one"
        )
    return int(ids[0])


def _started(task: Task, problem: Problem, seed: int) -> Any:
    try:
        return task.start(problem, seed)
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the environment of task {task.name} could not start: {type(error).__name__}: {error}{raised_in(error)} "
            f"(problem {problem.id})"
        ) from error


def _take_turn(
    policy: Policy,
    task: Task,
    live: Sequence[_Episode],
    turn: int,
    settings: DrawSettings,
    ends: Tensor,
    stream: torch.Generator,
) -> None:
    """Draw one turn of each episode and let the environment answer."""
    sampling = settings.sampling
    rows = [own.prompt + own.tokens for own in live]
    width = max(map(len, rows))
    padding = [width - len(row) for row in rows]
    filled = [[policy.pad] * blank + row for blank, row in zip(padding, rows, strict=True)]
    ids = torch.tensor(filled, device=ends.device)
    mask = torch.arange(width, device=ends.device) >= torch.tensor(padding, device=ends.device)[:, None]
    room = torch.tensor([sampling.max_tokens - len(own.tokens) for own in live], device=ends.device)
    some = replace(sampling, max_tokens=int(room.max()))
    drawn = sample(policy.model, (ids, mask), 1, some, ends, policy.pad, stream, limits=room)
    counts, every = drawn.mask.sum(1).tolist(), (drawn.tokens, drawn.logp, drawn.entropy)
    of_rows = zip(*(values.tolist() for values in every), counts, drawn.truncated.tolist(), strict=True)
    texts: dict[tuple[int, ...], str] = {}
    heard: dict[str, list[int]] = {"": []}
    for own, (tokens, logp, entropy, count, cut) in zip(live, of_rows, strict=True):
        tokens = tokens[:count]
        own.anchors.append(_anchored(task, own))
        own.tokens += tokens
        own.drawn += [True] * count
        own.turns += [turn] * count
        own.logp += logp[:count]
        own.entropy += entropy[:count]
        if cut:
            own.rewards.append(0.0)
            own.stop = "length"
            continue
        if tuple(tokens) not in texts:
            texts[tuple(tokens)] = str(policy.tokenizer.decode(tokens, skip_special_tokens=True))
        said = texts[tuple(tokens)]
        answer = _answered(task, own, said, turn, settings.reward_timeout, settings.reward_errors)
        own.rewards.append(answer.reward)
        if answer.done:
            own.stop = answer.why
        elif tokens[-1] != int(ends[-1]):
            own.stop = "eos"
        elif turn + 1 < task.max_turns:
            if answer.observation not in heard:
                heard[answer.observation] = policy.tokenizer(answer.observation, add_special_tokens=False).input_ids
            _observe(own, heard[answer.observation], turn, sampling.max_tokens)


def _anchored(task: Task, own: _Episode) -> str:
    """The key of the state of an episode."""
    try:
        anchor = task.anchor(own.state)
        if not isinstance(anchor, str):
            raise TypeError(f"{anchor!r:.40} is no text")
        return anchor
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the anchor of a state of task {task.name} cannot be had: {type(error).__name__}: {error}"
            f"{raised_in(error)} (problem {own.problem.id}); return a text, or leave its method anchor out"
        ) from error


def _answered(task: Task, own: _Episode, said: str, turn: int, seconds: float, errors: ErrorPolicy) -> Turn:
    """The environment's answer; that of a failed one ends the episode."""
    try:
        with time_limit(seconds):
            answer = task.step(own.problem, own.state, said)
        own.failed = _wrong(answer)
        if not own.failed:
            return answer
    except OutOfTime:
        own.failed = f"took longer than {seconds:g} s"
    except (Exception, SystemExit) as error:
        own.failed = f"raised {type(error).__name__}: {error}{raised_in(error)}"
    own.failed += f" (problem {own.problem.id}, turn {turn + 1})"
    if errors == "fail":
        raise UserError(
            f"the environment of task {task.name} {own.failed}; correct it, or set reward_errors to zero or drop"
        )
    return Turn(done=True, why="error")


def _wrong(answer: Any) -> str:
    """What is wrong with an environment's answer, a verb with what follows; empty where it is right."""
    if not isinstance(answer, Turn) or not math.isfinite(number(answer.reward)):
        return f"answered {answer!r:.80}, which is no Turn with a finite reward"
    if not isinstance(answer.observation, str):
        return f"answered with the observation {answer.observation!r:.40}, which is no text"
    if answer.done and answer.why not in STOPS:
        return f"ended an episode for the reason {answer.why!r:.40}; use one of {', '.join(STOPS)}"
    return ""


def _observe(own: _Episode, ids: Sequence[int], turn: int, most: int) -> None:
    """Append the tokens of what the environment said; an episode without room for a further one ends at the limit."""
    if len(own.tokens) + len(ids) >= most:
        own.stop = "length"
        return
    own.tokens += ids
    own.drawn += [False] * len(ids)
    own.turns += [turn] * len(ids)
    own.logp += [0.0] * len(ids)
    own.entropy += [0.0] * len(ids)


def _collected(episodes: Sequence[_Episode], policy: Policy, errors: ErrorPolicy) -> _Trajectories:
    device, width = policy.model.device, max(1, *(len(own.tokens) for own in episodes))

    def padded(rows: Sequence[Sequence[float]], blank: float, kind: torch.dtype) -> Tensor:
        return torch.tensor([[*row, *[blank] * (width - len(row))] for row in rows], dtype=kind, device=device)

    failed = [own.failed for own in episodes if own.failed]
    if failed and len(failed) == len(episodes):
        raise UserError(f"the environment failed in every rollout; the first {failed[0]}; correct it")
    return _Trajectories(
        Completions(
            tokens=padded([own.tokens for own in episodes], policy.pad, torch.long),
            mask=padded([own.drawn for own in episodes], False, torch.bool),
            logp=padded([own.logp for own in episodes], 0.0, torch.float32),
            entropy=padded([own.entropy for own in episodes], 0.0, torch.float32),
            truncated=torch.tensor([own.stop == "length" for own in episodes], device=device),
        ),
        padded([own.turns for own in episodes], -1, torch.long),
        tuple(tuple(own.rewards) for own in episodes),
        tuple(tuple(own.anchors) for own in episodes),
        tuple(own.stop for own in episodes),
        tuple(VALUES[errors] if own.failed and errors != "fail" else math.fsum(own.rewards) for own in episodes),
        tuple(failed),
    )
