"""From problems to graded rollouts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.lab.objectives import advantages, recipes, shaping
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import RESAMPLE_ROUNDS, collect, drawn_problems, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic

TASK = Arithmetic(size=40)
TRAIN = TASK.problems("train")


class Letter(Arithmetic):
    """Reward 1 for completions whose first character is a letter: about half of a random model's."""

    def reward(self, problem, completion):
        return float(completion[:1].isalpha())


class Never(Arithmetic):
    def reward(self, problem, completion):
        return 0.0


def batch(policy: Policy, task: Arithmetic = TASK, objective=recipes.GRPO, position: int = 0, **kwargs):
    return collect(policy, task, TRAIN, objective, Sampling(8), (3, 4), seed=0, position=position, **kwargs)


def test_every_problem_is_seen_once_an_epoch_in_a_new_order() -> None:
    drawn = [p.id for p in drawn_problems(TRAIN, 0, 0, 2 * len(TRAIN))]
    first, second = drawn[: len(TRAIN)], drawn[len(TRAIN) :]
    assert Counter(first) == Counter(second) == Counter(p.id for p in TRAIN)
    assert first != second


def test_position_continues_the_order() -> None:
    whole = drawn_problems(TRAIN, 3, 35, 12)
    assert whole == [*drawn_problems(TRAIN, 3, 35, 5), *drawn_problems(TRAIN, 3, 40, 7)]


def test_generators_depend_on_seed_and_stream_only() -> None:
    def first(*stream: str | int) -> float:
        return torch.rand(1, generator=generator(*stream)).item()  # type: ignore[arg-type]

    assert first(0, "sample", 1) == first(0, "sample", 1)
    assert len({first(0, "sample", 1), first(1, "sample", 1), first(0, "sample", 2), first(0, "order", 1)}) == 4


def test_rows_belong_to_their_prompts(policy: Policy) -> None:
    made = batch(policy)
    rollouts = made.rollouts
    assert rollouts.groups == (3, 4)
    assert rollouts.rewards.dtype == torch.float64
    for b, text in enumerate(made.texts):
        prompt = policy.tokenizer.decode(rollouts.prompt_ids[b][rollouts.prompt_mask[b]])
        assert prompt == made.problems[b // 4].prompt
        assert policy.tokenizer.decode(rollouts.tokens[b][rollouts.mask[b]], skip_special_tokens=True) == text
        assert rollouts.rewards[b // 4, b % 4] == TASK.reward(made.problems[b // 4], text)
    assert made.position == 3
    assert made.drawn == 12
    assert made.tokens == int(rollouts.mask.sum())


def test_dead_groups_are_replaced(policy: Policy) -> None:
    task = Letter(size=40)
    start = next(p for p in range(0, 300, 3) if advantages.dead(batch(policy, task, position=p).rollouts.rewards).any())
    again = batch(policy, task, replace(recipes.GRPO, resample_dead=True), position=start)
    assert not advantages.dead(again.rollouts.rewards).any()
    assert again.drawn > 12
    assert again.dead > 0
    assert again.position == start + again.drawn // 4
    assert len(again.problems) == 3
    assert len(again.texts) == 12
    for b, text in enumerate(again.texts):  # still aligned after padding and choosing
        kept = again.rollouts.tokens[b][again.rollouts.mask[b]]
        assert policy.tokenizer.decode(kept, skip_special_tokens=True) == text
        assert again.rollouts.rewards[b // 4, b % 4] == float(text[:1].isalpha())


def test_resampling_gives_up(policy: Policy) -> None:
    made = batch(policy, Never(size=40), replace(recipes.GRPO, resample_dead=True))
    assert made.drawn == 12 * RESAMPLE_ROUNDS
    assert made.dead == 1.0
    assert made.rollouts.groups == (3, 4)


def test_overlong_completions_are_punished_after_grading(policy: Policy) -> None:
    objective = replace(recipes.GRPO, overlong=0.5)
    made = batch(policy, objective=objective)
    penalty = shaping.overlong(made.rollouts.lengths, 8, 4).reshape(3, 4)
    assert (penalty < 0).any()
    torch.testing.assert_close(made.rollouts.rewards, made.graded + penalty, check_dtype=False)
    torch.testing.assert_close(made.graded, batch(policy).graded)


def test_step_labels_lie_on_the_token_that_closes_each_step(policy: Policy) -> None:
    made = batch(policy, label_steps=True)
    rollouts = made.rollouts
    step_rewards, step_ends = (rollouts.token_annotations[name] for name in ("step_rewards", "step_ends"))
    for b, text in enumerate(made.texts):
        steps = TASK.steps(made.problems[b // 4], text)
        where = step_ends[b].nonzero()[:, 0].tolist()
        ids = rollouts.tokens[b][rollouts.mask[b]].tolist()
        spelled = [t for t, i in enumerate(ids) if i not in policy.tokenizer.all_special_ids]  # a character each
        closed = [spelled[step.end - 1] if step.end <= len(spelled) else len(ids) - 1 for step in steps]
        assert where == sorted(set(closed))
        assert closed[-1] == len(ids) - 1
        assert float(step_rewards[b].sum()) == sum(step.correct for step in steps)
    assert (step_rewards[~step_ends] == 0).all()


def test_prompts_must_fit_the_context(policy: Policy) -> None:
    with pytest.raises(UserError, match=r"has \d+ tokens, and with a completion of 60.*64 tokens of context"):
        collect(policy, TASK, TRAIN, recipes.GRPO, Sampling(60), (2, 2), seed=0, position=0)
