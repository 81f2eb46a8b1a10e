"""Every source of credit on one batch of the shipped model: values of boundaries, prices, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.credit import frontier as credit_frontier
from grposcope.instruments.credit import record as credits
from grposcope.instruments.credit import record as records
from grposcope.instruments.credit import sources as credit_sources
from grposcope.instruments.credit.answer import of_record
from grposcope.instruments.credit.error import BASE
from grposcope.instruments.credit.frontier import CreditBudget, _Frontier, _shares_of_squares, _split
from grposcope.lab import policies, tasks
from grposcope.lab.credit import boundaries
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.continuations import Continuations
from grposcope.lab.sampling.sampler import Sampling
from grposcope.logs import read

BUDGET = CreditBudget(prompts=16, group=6, reference=8, drawn=4, oracle=False, counts=(2,), trees=("3x2", "5x5"))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies.load("tiny")


@pytest.fixture(scope="module")
def found(policy: Policy) -> _Frontier:
    task = tasks.load("arithmetic")
    return credit_frontier.measure(policy, task, BUDGET, Sampling(task.max_tokens), seed=1, quiet=True)


def three_rollouts() -> RolloutBatch:
    """One prompt; rollouts of 4, 3 and 2 tokens, steps after the second token, where there is a third."""
    mask = torch.arange(4) < torch.tensor([[4], [3], [2]])
    ends = torch.zeros(3, 4, dtype=torch.bool)
    ends[:2, 1] = ends[0, 3] = ends[1, 2] = ends[2, 1] = True
    zeros = torch.zeros(3, 4)
    return RolloutBatch(
        prompt_ids=torch.ones(3, 1).long(), prompt_mask=torch.ones(3, 1).bool(), tokens=torch.arange(12).reshape(3, 4),
        mask=mask, logp=zeros, entropy=zeros, truncated=torch.zeros(3).bool(), rewards=torch.tensor([[1.0, 0.0, 0.0]]),
        token_annotations={"step_rewards": zeros.double(), "step_ends": ends},
    )  # fmt: skip


def values_of(rollouts: RolloutBatch) -> credit_sources.Values:
    """Four continuations of the two boundaries: values 0.5 and 1 in the first half, 1 and 0 in the second."""
    inside = boundaries.steps(rollouts)
    assert inside == [[2], [2], []]
    rewards = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]).double()
    two = torch.arange(2)
    continued = Continuations(two, torch.tensor([2, 2]), two, rewards, torch.ones(2, 4).long(), ())
    return credit_sources.Values(continued, torch.tensor([[0.25], [0.75]]).double())


def test_credit_from_values_of_boundaries() -> None:
    """V after − V before on the tokens of each segment, the prompt's own value or that of the others at the start."""
    rollouts = three_rollouts()
    values = values_of(rollouts)
    own, others = values.of(values.halves[0], rollouts)
    first = torch.tensor([[0.25, 0.25, 0.5, 0.5], [0.75, 0.75, -1.0, 0.0], [-0.25, -0.25, 0.0, 0.0]]).double()
    torch.testing.assert_close(own, first)
    starts = torch.tensor([[0.0], [0.5], [0.5]]).double()  # mean rewards of the others
    shifted = first + (0.25 - starts) * torch.tensor([[1, 1, 0, 0]] * 3)
    torch.testing.assert_close(others, shifted)
    torch.testing.assert_close(values.of(values.halves[1], rollouts)[0][0], torch.tensor([0.25, 0.25, 0, 0]).double())
    assert values.few(1) == slice(3, 4)


def test_shares_of_squares_add_up() -> None:
    """Outcome credit of equal lengths differs between rollouts alone; a constant is all common."""
    rollouts = replace(three_rollouts(), mask=torch.ones(3, 4).bool())
    outcome = torch.tensor([[1.0], [-0.5], [-0.5]]).double().expand(3, 4)
    for given, within, common in (
        (outcome, 0.0, 0.0),
        (torch.ones(3, 4).double(), 0.0, 1.0),
        (torch.tensor([1.0, -1.0, 1.0, -1.0]).double().expand(3, 4), 1.0, 0.0),
        (outcome + torch.tensor([1.0, -1.0, 1.0, -1.0]).double(), 2 / 3, 0.0),
    ):
        shares = _shares_of_squares(given, rollouts)
        assert [share.value for share in shares] == pytest.approx([within, common])


def test_wrong_signs_count_steps_that_are_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where 200 continuations agree, the sign is known: outcome credit has the wrong one on the second step of two."""
    rollouts = three_rollouts()
    values = values_of(rollouts)
    agreed = torch.tensor([[0.0], [1.0]]).double().expand(2, 200)
    values = credit_sources.Values(replace(values.continuations, rewards=agreed), torch.tensor([[0.5], [0.5]]).double())
    found = credit_sources.assigned(rollouts, True, "t")
    found.add_continued(rollouts, values, (2,))
    signs = credit_sources.wrong_signs(found, values, rollouts)
    # exact credit: −0.5 +1 | +0.5 −1 | −0.5; outcome credit: + + | − − | −
    assert signs["outcome"].value == pytest.approx(2 / 5)
    assert signs["continuations:k=2"].value == pytest.approx(0.1)  # 0 on the first step of rollout 0: half an error
    assert "exact" not in signs


@pytest.mark.slow
def test_all_sources_are_measured_on_one_batch(found: _Frontier) -> None:
    record = found.record
    names = [one.name for one in record.sources]
    assert names[0] == BASE
    assert {"token_baseline", "feedback"} <= set(names)
    assert {name: why for name, why in record.skipped.items() if "tree" not in name} == {
        "value": "needs a trained critic in addition to the policy, but none was given",
        "teacher": "needs a teacher in addition to the policy, but none was given",
    }
    assert {"outcome:standardized", "steps", "process", "prefix", "state", "position", "entropy", "exact",
            "continuations:k=2", "placebo:of=prefix", "placebo:of=exact"} <= set(names)  # fmt: skip
    assert (record.prompts, record.group, record.continuations, record.at) == (16, 6, 4, "steps")
    centered = record.source("outcome:centered")
    assert centered is not None
    assert centered.scale.value == pytest.approx(5 / 6, rel=1e-4)
    assert centered.saving.value == pytest.approx(1, rel=1e-3), (centered, record.source("outcome"), record.solved)
    paid = record.source("continuations:k=2")
    assert paid is not None
    assert paid.tokens.value == pytest.approx(1 + record.extra * 2 / 4 / record.tokens)
    tree = record.source("tree:widths=3x2,at=step")
    assert tree is not None
    assert 0.5 < tree.tokens.value < 1  # beginnings are generated once
    assert tree.within.value > 0
    assert "wider than the group" in record.skipped["tree:widths=5x5,at=step"]
    assert all(math.isnan(one.wrong.value) for one in record.sources)  # too few continuations to be sure of a sign


@pytest.mark.slow
@pytest.mark.slow
def test_the_same_seed_gives_the_same_record(policy: Policy, found: _Frontier) -> None:
    task = tasks.load("arithmetic")
    again = credit_frontier.measure(policy, task, BUDGET, Sampling(task.max_tokens), seed=1, quiet=True)
    assert [one.mse.value for one in again.record.sources] == pytest.approx(
        [one.mse.value for one in found.record.sources], nan_ok=True
    )


@pytest.mark.slow
def test_the_record_is_read_back_and_worded(found: _Frontier, tmp_path: Path) -> None:
    records.write(tmp_path, found.record, found.rollouts)
    again = records.read(tmp_path)
    read_back, measured = of_record(again), of_record(found.record)
    assert (read_back.paragraphs, read_back.tables) == (measured.paragraphs, measured.tables)
    rows = again.read_rollouts()
    assert len(rows) == 72
    assert set(rows[0].measures) == {
        one.name for one in found.record.sources if not one.name.startswith(("outcome:", "tree:"))
    }
    run = read(tmp_path)
    assert credits.of_run(run) == (again,)
    (tmp_path / records.TOKENS).write_text('{"tokens": ["a"], "credit": {"x": []}}\n')
    with pytest.raises(UserError, match="credit x"):
        again.read_rollouts()
    (tmp_path / records.RECORD).write_text('{"format": 99}')
    with pytest.raises(UserError, match="upgrade"):
        records.read(tmp_path)


def test_the_measured_group_is_apart_from_the_reference(policy: Policy) -> None:
    """The first G rollouts of each prompt are credited, the others are the reference, none is in both."""
    task = tasks.load("arithmetic:steps=1")
    drawn = credit_frontier.draw(policy, task, recipes.RLOO, Sampling(task.max_tokens), (3, 6), 0)
    one, other = _split(drawn.rollouts, 2)
    assert (one.groups, other.groups) == ((3, 2), (3, 4))
    for p in range(3):
        rows = torch.cat((one.tokens[2 * p : 2 * p + 2], other.tokens[4 * p : 4 * p + 4]))
        torch.testing.assert_close(rows, drawn.rollouts.tokens[6 * p : 6 * p + 6])
        torch.testing.assert_close(torch.cat((one.rewards[p], other.rewards[p])), drawn.rollouts.rewards[p])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"group": 1}, "nothing to compare with"), ({"prompts": 2}, "too few"), ({"reference": 2}, "4 or more"),
     ({"drawn": 1}, "2 or more"), ({"counts": (0,)}, "1 or more")],
)  # fmt: skip
def test_too_small_a_budget_is_refused(policy: Policy, change: dict[str, int], said: str) -> None:
    task = tasks.load("arithmetic:steps=1")
    budget = replace(BUDGET, **change)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        credit_frontier.measure(policy, task, budget, Sampling(task.max_tokens), quiet=True)
