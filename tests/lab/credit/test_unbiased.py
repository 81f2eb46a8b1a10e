"""What credit of steps teaches: its expected gradient over every group of rollouts, against the gradient of J."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from step_policies import Credit, Listed, go_on, tree
from torch import Tensor

from grposcope.lab.credit.process import process
from grposcope.lab.credit.steps import steps
from grposcope.lab.objectives import reductions
from grposcope.lab.sampling.rollouts import _step_labels
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.tasks.base import Problem

CELLS = list(itertools.product((0.1, 0.3, 0.5, 0.7, 0.9), repeat=2))


def logits_of(*probabilities: float) -> Tensor:
    return torch.logit(torch.tensor(probabilities, dtype=torch.float64))


def expected(listed: Listed, logits: Tensor, credit: Credit, group: int) -> Tensor:
    return listed.expected(logits, credit, group, reductions.sequence_sum)


def finite_differences(listed: Listed, logits: Tensor, width: float = 1e-5) -> Tensor:
    ahead = torch.stack([listed.value(logits + width * e) for e in torch.eye(len(logits)).double()])
    behind = torch.stack([listed.value(logits - width * e) for e in torch.eye(len(logits)).double()])
    return (ahead - behind) / (2 * width)


@pytest.mark.parametrize("group", [2, 3, 4])
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.2, 0.9), (0.9, 0.3)])
def test_steps_give_the_gradient_where_every_step_is_alike(p: float, q: float, group: int) -> None:
    """Three steps, each right with probability p, and a stop action: the cell of the theory."""
    names, listed = tree(3, lambda kind, _: kind)
    logits = logits_of(*(p if name == "step" else q for name in names))
    truth = listed.gradient(logits)
    torch.testing.assert_close(finite_differences(listed, logits), truth, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(expected(listed, logits, steps, group), truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group", [2, 3, 4])
def test_steps_give_the_gradient_whatever_a_decision_depends_on(group: int) -> None:
    """A logit for every prefix, at random; probabilities from 0.03 to 0.97."""
    names, listed = tree(3 if group < 4 else 2)
    for seed in range(3):
        logits = 1.5 * torch.randn(len(names), generator=torch.Generator().manual_seed(seed)).double()
        truth = listed.gradient(logits)
        torch.testing.assert_close(finite_differences(listed, logits), truth, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(expected(listed, logits, steps, group), truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("credit", "share"), [(steps, 0.0625), (process, 0.0)])
def test_the_decision_to_stop_answers_for_what_the_others_went_on_to_earn(credit: Credit, share: float) -> None:
    """Of the gradient 0.125 of "go" at p = q = ½, half is earned by "stop"; process supervision gives it 0."""
    listed, logits = go_on(), logits_of(0.5, 0.5)

    def of_stop(rewards: Tensor, ends: Tensor, mask: Tensor, group: int) -> Tensor:
        return credit(rewards, ends, mask, group) * (mask.sum(-1, keepdim=True) == 2)

    assert float(expected(listed, logits, of_stop, 4)[0]) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("group", [2, 3, 4])
def test_process_supervision_has_the_wrong_sign_on_going_on(group: int) -> None:
    """In 25 of 25 cells, at G = 2, 3 and 4; p = P(go on), q = P(right) of the second step."""
    listed = go_on()
    for p, q in CELLS:
        logits = logits_of(p, q)
        truth = listed.gradient(logits)
        assert float(truth[0]) == pytest.approx(p * (1 - p) * q)
        torch.testing.assert_close(expected(listed, logits, steps, group), truth, rtol=1e-12, atol=1e-12)
        assert float(expected(listed, logits, process, group)[0]) < 0
    half = expected(listed, logits_of(0.5, 0.5), process, 4)
    assert group != 4 or float(half[0]) == pytest.approx(-0.171, abs=5e-4)  # the truth is +0.125


@pytest.mark.slow
def test_process_supervision_climbs_down() -> None:
    """300 steps of expected gradients from P(go on) = 0.5, P(right) = 0.9, at G = 4 and learning rate 0.5."""
    listed, values = go_on(), {}
    for name, credit in (("steps", steps), ("process", process)):
        logits = logits_of(0.5, 0.9)
        assert float(listed.value(logits)) == pytest.approx(1.45)
        for _ in range(300):
            logits = logits + 0.5 * expected(listed, logits, credit, 4)
        values[name] = float(listed.value(logits))
    assert values["steps"] > 1.98
    assert values["process"] < 1.25


def test_which_reductions_keep_it_unbiased() -> None:
    """Sums over tokens do, up to a factor; a mean over the tokens of each rollout lets going on count for less."""
    listed, logits = tree(3, lambda kind, _: kind)[1], logits_of(0.8, 0.8)
    truth = listed.gradient(logits)
    fixed = partial(reductions.constant_length, length=10)
    torch.testing.assert_close(listed.expected(logits, steps, 3, fixed), truth / 10, rtol=1e-12, atol=1e-12)
    mean = listed.expected(logits, steps, 3, reductions.sequence_mean)
    assert float(torch.nn.functional.cosine_similarity(mean, truth, dim=0)) == pytest.approx(0.96, abs=5e-3)


def test_standardizing_it_afterwards_biases_it() -> None:
    """Over the tokens of a group: each prompt's gradient is scaled by another factor, and turned."""

    def standardized(rewards: Tensor, ends: Tensor, mask: Tensor, size: int) -> Tensor:
        given, kept = (a.unflatten(0, (-1, size)) for a in (steps(rewards, ends, mask, size), mask))
        count = kept.sum((-2, -1), keepdim=True)
        off = (given - given.sum((-2, -1), keepdim=True) / count) * kept
        return (off / ((off.square().sum((-2, -1), keepdim=True) / count).sqrt() + 1e-9)).flatten(0, 1)

    listed = go_on()
    factors = [
        expected(listed, x, standardized, 4) / listed.gradient(x) for x in (logits_of(0.9, 0.9), logits_of(0.1, 0.9))
    ]
    assert factors[0].tolist() == pytest.approx([1.93, 1.65], abs=5e-3)
    assert factors[1].tolist() == pytest.approx([1.45, 1.43], abs=5e-3)


def test_the_labels_of_arithmetic_end_a_step_where_its_reward_is_decided() -> None:
    """All completions of 1+1+1= in the tokens 3, 2+1, = and end of text, of at most four, labelled by the task.

    Where a step ends on the last character before the `=`, the credit of `=` is blind to what it closes.
    """
    spelled = ["3", "2+1", "=", ""]
    sequences = [s for n in range(1, 5) for s in itertools.product(range(4), repeat=n)]
    sequences = [s for s in sequences if 3 not in s[:-1] and (s[-1] == 3 or len(s) == 4)]
    texts = ["".join(spelled[i] for i in s) for s in sequences]
    tokens = torch.tensor([[*s, *[3] * (4 - len(s))] for s in sequences])
    mask = torch.arange(4) < torch.tensor([[len(s)] for s in sequences])
    tokenizer = SimpleNamespace(all_special_ids=[3], decode=lambda ids, **_: "".join(spelled[i] for i in ids))
    completions: Any = SimpleNamespace(tokens=tokens, mask=mask)
    problems = [Problem("", "1+1+1=", "3")] * len(texts)
    labels = _step_labels(cast("Any", SimpleNamespace(tokenizer=tokenizer)), Arithmetic(), problems, texts, completions)
    before = torch.cat([torch.full((len(tokens), 1), 3), tokens[:, :-1]], 1)

    def token_logp(logits: Tensor) -> Tensor:  # of the token before, (4, 4)
        return logits.reshape(4, 4).log_softmax(-1)[before, tokens] * mask

    listed = Listed(labels["step_rewards"], labels["step_ends"], mask, token_logp)
    logits = torch.randn(16, generator=torch.Generator().manual_seed(0)).double()
    assert float(listed.probability(logits).sum()) == pytest.approx(1)
    assert listed.rewards.sum(-1).max() == 2
    truth = listed.gradient(logits)
    torch.testing.assert_close(finite_differences(listed, logits), truth, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(expected(listed, logits, steps, 2), truth, rtol=1e-12, atol=1e-12)
