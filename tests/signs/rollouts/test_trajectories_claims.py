"""Claims about turns: what breaks them, what holds, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace

import agent_rollouts
import numpy as np
import pytest

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.faults.judge_rollouts import prove
from grposcope.maths import turn_rules
from grposcope.signs.rollouts.claims import tokens, trajectory_weights, turns
from grposcope.signs.rollouts.evidence import PipelineEvidence, Stated
from grposcope.signs.rollouts.stated_loss import StatedLoss


def of(rows: list[Rollout], loss: StatedLoss | None = None) -> dict[str, Finding]:
    evidence = PipelineEvidence("", rows=tuple(rows), stated=Stated(loss=loss))
    proofs = (turns.PROOF, trajectory_weights.PROOF)
    return {own.fault: own for findings in prove(evidence, proofs).values() for own in findings if own.fault}


def test_sound_trajectories() -> None:
    found = of(agent_rollouts.trajectories(1), StatedLoss())
    assert {name: one.status for name, one in found.items()} == dict.fromkeys(
        ("turn ends masked", "turns retokenised", "reset states differ", "weight by turns", "baseline by rows"),
        "excluded",
    )
    assert found["weight by turns"].because == "A trajectory weighs equally in the loss, as the stated loss has it."


def test_how_a_trajectory_weighs_is_compared_with_the_stated_loss() -> None:
    """Weights by tokens are those of a token mean, and not of a mean over rollouts."""
    rows = [
        replace(row, loss_weights=np.where(row.mask, -row.advantages[0] / 40, 0.0))
        for row in agent_rollouts.trajectories(2)
        if row.mask is not None and row.advantages is not None
    ]
    assert of(rows, StatedLoss(reduction="token mean"))["weight by turns"].status == "excluded"
    assert "by its tokens" in of(rows)["weight by turns"].because
    broken = of(rows, StatedLoss())["weight by turns"]
    assert broken.present
    assert broken.because.startswith(
        "a trajectory weighs by its tokens in the loss, and the stated loss lets it weigh equally: one of the most "
        "turns has "
    )


def test_weights_by_rows_are_a_fault_without_a_stated_loss() -> None:
    found = of(agent_rollouts.weighed_by_rows(agent_rollouts.trajectories(2)))["weight by turns"]
    assert found.present
    assert "one of the most turns has 3 × the weight of one of the fewest" in found.because


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("broadcast", ""), ("to-go", ""), ("step groups", ""), ("broadcast + step groups", ""),
        ("to-go of who is there", "absent turns"), ("survivors", "absent turns"), ("groups of turns", "absent turns"),
        ("mean over rows", "baseline by rows"), ("step groups of all", "biased step groups"),
        ("broadcast + step groups of all", "biased step groups"),
        ("broadcast + step groups, standardized", "biased step groups"),
        ("mean over rows + step groups, standardized", "baseline by rows"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_rule_of_turns_is_named(rule: str, fault: str, scale: float) -> None:
    """Also where a deviation divides the advantages of each group."""
    rows = agent_rollouts.with_turn_rewards(agent_rollouts.trajectories(3), rule)
    rows = [replace(row, advantages=scale * row.advantages) for row in rows if row.advantages is not None]
    evidence = PipelineEvidence("", rows=tuple(rows))
    found = [own for findings in prove(evidence, (trajectory_weights.PROOF,)).values() for own in findings
             if "rule" in own.because]  # fmt: skip
    assert [own.fault for own in found if own.present] == [fault] * bool(fault)
    [own] = found
    assert " with ".join(f"“{name}”" for name in rule.split(" + ")) in own.because
    if fault:
        assert turn_rules.BIAS[next(name for name in rule.split(" + ") if name in turn_rules.BIAS)] in own.because
        assert "turns have another sign than by the rule without it" in own.because


def test_turned_signs_are_counted() -> None:
    """Of a group of two, the longer of which is alone at its second turn."""
    rewards = np.array([[0.0, 1.0], [2.0, np.nan]])
    rows = [
        Rollout(f"row {i}", 1, "a", turns=np.arange(2 - i), written=np.ones(2 - i, bool),
                completion_ids=np.arange(2 - i),
                turn_rewards=rewards[i, : 2 - i], advantages=turn_rules._survivors(rewards)[i, : 2 - i])
        for i in range(2)
    ]  # fmt: skip
    fair = turn_rules._to_go(rewards)
    biased = turn_rules._survivors(rewards)
    turned = int((np.sign(fair) != np.sign(biased))[~np.isnan(rewards)].sum())
    assert f"; {turned} of 3 turns have another sign" in of(rows)["absent turns"].because


@pytest.mark.parametrize(
    ("states", "said"), [(False, "write turn_rewards"), (True, "write them or the rule's own advantages")]
)
def test_what_is_missing_to_know_the_rule(states: bool, said: str) -> None:
    rows = agent_rollouts.with_turn_rewards(agent_rollouts.trajectories(3), "broadcast + step groups, standardized")
    rows = [replace(row, anchors=(), turn_rewards=row.turn_rewards if states else row.turn_rewards[:0])
            for row in rows if row.turn_rewards is not None]  # fmt: skip
    evidence = PipelineEvidence("", rows=tuple(rows))
    reasons = [own.because for findings in prove(evidence, (trajectory_weights.PROOF,)).values() for own in findings]
    assert any(said in because for because in reasons)


def test_a_rule_that_is_none_of_these_cannot_be_told() -> None:
    rows = agent_rollouts.with_turn_rewards(agent_rollouts.trajectories(3), "to-go")
    rows = [replace(row, advantages=row.advantages**2) for row in rows if row.advantages is not None]
    reasons = [own for findings in prove(PipelineEvidence("", rows=tuple(rows)), (trajectory_weights.PROOF,)).values()
               for own in findings]  # fmt: skip
    assert any("follow no known rule" in own.because for own in reasons)


def test_baselines_of_standardized_advantages() -> None:
    """(r − b)/s gives b too."""
    rows = [replace(row, advantages=row.advantages / 0.4) for row in agent_rollouts.trajectories(1)
            if row.advantages is not None]  # fmt: skip
    assert of(rows)["baseline by rows"].status == "excluded"
    rows = [replace(row, advantages=row.advantages / 0.4) for row in agent_rollouts.baseline_by_rows(rows)
            if row.advantages is not None]  # fmt: skip
    assert of(rows)["baseline by rows"].present


def test_a_compacted_history_is_no_retokenised_one() -> None:
    """A prompt that is much shorter than the turns before it is a summary, and no fault."""
    one = agent_rollouts.trajectories(1)[4]
    assert one.prompt_ids is not None
    before = Rollout(prompt_ids=one.prompt_ids, completion_ids=np.arange(60))
    short = replace(one, continuations=(before,), prompt_ids=np.append(one.prompt_ids, [7, 8]))
    assert of([short, one])["turns retokenised"].status == "excluded"


def test_ends_of_turns_are_told_by_the_claim_of_turns_alone() -> None:
    evidence = PipelineEvidence(
        "", rows=tuple(agent_rollouts.ends_masked(agent_rollouts.trajectories(1))), stated=Stated(ends=(50,))
    )
    found = {own.fault for findings in prove(evidence, (tokens.PROOF, turns.PROOF)).values() for own in findings
             if own.present}  # fmt: skip
    assert found == {"turn ends masked"}


def test_rollouts_of_one_turn_make_no_such_claim() -> None:
    rows = [Rollout(f"row {i}", 1, "a", completion_ids=np.arange(4), mask=np.ones(4, bool)) for i in range(4)]
    assert prove(PipelineEvidence("", rows=tuple(rows)), (turns.PROOF, trajectory_weights.PROOF)) == {}
