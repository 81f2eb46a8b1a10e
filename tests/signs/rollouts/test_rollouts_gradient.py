"""The gradient is the objective's: closed forms against autograd, and each fault of the loss by its name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import judged_claims
import numpy as np
import pytest
import torch

from grposcope.core.rollouts import Rollout
from grposcope.lab.objectives import Objective, divergences, ratios, recipes, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip, OneSided, Reinforce
from grposcope.signs.kl_gradient import KlTerm
from grposcope.signs.rollouts import token_weights
from grposcope.signs.rollouts.evidence import (
    GradientEvidence,
    OptimizerEvidence,
    PipelineEvidence,
    ScoredTokens,
    Stated,
)
from grposcope.signs.rollouts.stated_loss import StatedLoss

COUNT, WIDTH, KL = 8, 6, 0.3


def drawn(seed: int = 0) -> dict[str, Any]:
    """Log-probabilities, mask and advantages of a batch, in float64."""
    random = torch.Generator().manual_seed(seed)
    logp = -torch.rand(COUNT, WIDTH, generator=random, dtype=torch.float64) * 3
    apart = [0.4 * torch.randn(COUNT, WIDTH, generator=random, dtype=torch.float64) for _ in range(2)]
    lengths = torch.randint(1, WIDTH + 1, (COUNT, 1), generator=random)
    return {"logp": logp, "old": logp + apart[0], "reference": logp + apart[1], "mask": torch.arange(WIDTH) < lengths,
            "credit": torch.randn(COUNT, 1, generator=random, dtype=torch.float64)}  # fmt: skip


def derivative(objective: Objective, given: dict[str, Any], kl: float = KL) -> torch.Tensor:
    """∂L/∂log π (B, T) by autograd through the objective."""
    mask = given["mask"]
    credit = given["credit"].expand(-1, WIDTH).where(mask, 0.0)
    c = objective.reduction(mask)
    objective = replace(objective, kl=kl)
    return objective.partial_weights(given["logp"], given["old"], mask, credit, c, given["reference"])


def rows(given: dict[str, Any], weights: torch.Tensor | None = None, parts: int = 1) -> tuple[Rollout, ...]:
    """The batch as evidence."""
    made = []
    for i in range(COUNT):
        own = given["mask"][i].numpy()
        ids = np.arange(own.sum())
        made.append(Rollout(
            f"row {i}", 1, str(i // 4), completion_ids=ids, mask=own[own], advantages=given["credit"][i].numpy(),
            old=given["old"][i].numpy()[own], current=given["logp"][i].numpy()[own],
            reference=given["reference"][i].numpy()[own], micro_batch=i * parts // COUNT,
            loss_weights=None if weights is None else weights[i].numpy()[own],
        ))  # fmt: skip
    return tuple(made)


def told(evidence: PipelineEvidence, claim: str = "gradient") -> judged_claims.Judged:
    """What becomes of one claim."""
    return judged_claims.of(evidence)[claim]


def scored(logp: list[np.ndarray], step: int) -> ScoredTokens:
    """Log-probabilities alone."""
    none: list[Any] = [np.full(len(one), np.nan) for one in logp]
    return ScoredTokens(f"step {step}", step, logp, none, none, none, none, 9)


def sound(result: judged_claims.Judged) -> bool:
    """Whether a claim was tested in part and nothing is broken."""
    return result.status == "cannot tell" and bool(result.told) and bool(result.untested)


LOSSES = [
    (recipes.GRPO, StatedLoss()),
    (recipes.DAPO, StatedLoss(high=0.28, reduction="token mean")),
    (replace(recipes.GRPO, surrogate=Clip(0.2, 0.3, 1.5)), StatedLoss(high=0.3, bound=1.5)),
    (recipes.RLOO, StatedLoss("plain", reduction="sequence sum")),
    (replace(recipes.DR_GRPO, reduction=partial(reductions.constant_length, length=9)),
     StatedLoss(reduction="constant length", length=9)),
    (replace(recipes.GRPO, surrogate=OneSided()), StatedLoss("one-sided")),
    (replace(recipes.CISPO, surrogate=Cispo(0.3, 0.2)), StatedLoss("weighted", low=0.3, reduction="token mean")),
    (replace(recipes.GSPO, surrogate=Clip(0.1, 0.1)), StatedLoss(ratio="sequence", low=0.1, high=0.1)),
    (replace(recipes.GRPO, ratio=ratios.none, surrogate=Reinforce()), StatedLoss("plain", ratio="none")),
    (replace(recipes.GRPO, divergence=divergences.k1), StatedLoss(divergence="k1")),
    (replace(recipes.GRPO, divergence=divergences.k2), StatedLoss(divergence="k2")),
    (replace(recipes.GRPO, kl_weighted=True), StatedLoss(kl_weighted=True)),
]  # fmt: skip


@pytest.mark.parametrize(("objective", "loss"), LOSSES)
def test_closed_forms_are_autograd(objective: Objective, loss: StatedLoss) -> None:
    for seed in range(3):
        given = drawn(seed)
        wanted = derivative(objective, given)
        found = token_weights.of(loss, rows(given)).total(KL)
        for i, own in enumerate(given["mask"].numpy()):
            assert found[i] == pytest.approx(wanted[i].numpy()[own], rel=1e-9, abs=1e-12)
        stated = Stated(loss=loss, kl=KL, reference="start")
        start = scored([row.reference for row in rows(given) if row.reference is not None], 0)
        whole = PipelineEvidence("", rows=rows(given, wanted), stated=stated, scored=(start,))
        result = told(whole)
        assert result.status == "holds"
        pull = KlTerm(loss.divergence, weighted=loss.kl_weighted).climbs()
        assert any(f"Its KL term: {pull}." in finding.because for finding in result.told)
        without = replace(whole, rows=rows(given, derivative(objective, given, 0.0)), stated=replace(stated, kl=0.0))
        assert not any("Its KL term" in finding.because for finding in told(without).told)


@pytest.mark.parametrize(("change", "fault"), [
    (lambda given: derivative(recipes.GRPO, given, -KL), "KL sign"),
    (lambda given: derivative(recipes.GRPO, given, 0.0), "KL left out"),
    (lambda given: derivative(recipes.GRPO, given, 2 * KL), "KL coefficient"),
    (lambda given: -derivative(recipes.GRPO, given), "sign of the loss"),
    (lambda given: 4 * derivative(recipes.GRPO, given), "accumulation not scaled"),
    (lambda given: 3 * derivative(recipes.GRPO, given), "factor of the loss"),
    (lambda given: derivative(replace(recipes.GRPO, reduction=reductions.token_mean), given), "another aggregation"),
    (lambda given: derivative(recipes.GRPO, {**given, "credit": given["credit"].roll(1, 0)}),
     "weights of another loss"),
    (lambda given: derivative(recipes.GRPO, given) * (1 + 3e-4 * torch.eye(COUNT, WIDTH)), "weights of another loss"),
])  # fmt: skip
def test_faults_of_the_loss_are_named(change: Any, fault: str) -> None:
    """Four passes are added up; a single token that is off by 3e-4 is seen if it is of the larger ones."""
    given = drawn(4)
    stated = Stated(loss=StatedLoss(), kl=KL, accumulation=4)
    result = told(PipelineEvidence("", rows=rows(given, change(given), parts=4), stated=stated))
    assert result.status == "broken"
    assert fault in (result.told[0].fault, result.told[0].brief)
    assert result.told[0].onset == 1


def test_a_mean_of_means_is_told_from_a_mean_over_tokens() -> None:
    given = drawn(1)
    of_parts = [
        derivative(
            replace(recipes.GRPO, reduction=reductions.token_mean),
            {name: value[part : part + 4] for name, value in given.items()},
        )
        / 2
        for part in (0, 4)
    ]
    made = rows(given, torch.cat(of_parts), parts=2)
    result = told(PipelineEvidence("", rows=made, stated=Stated(loss=StatedLoss(reduction="token mean"), kl=KL)))
    assert result.told[0].fault == "wrong aggregation"
    assert "the means of the micro-batches" in result.told[0].because
    meant = Stated(loss=StatedLoss(reduction="part token mean"), kl=KL)
    assert sound(told(PipelineEvidence("", rows=made, stated=meant)))


def test_a_reference_that_moves() -> None:
    """Against the first weights, and without them where it is the policy itself after the weights have moved."""
    given = drawn(2)
    made = tuple(replace(row, step=5, mask=None) for row in rows(given))
    stated = Stated(kl=KL, reference="start")
    logp = [row.reference for row in made if row.reference is not None]
    right, wrong = scored(logp, 0), scored([one + 0.01 for one in logp], 0)
    assert sound(told(PipelineEvidence("", rows=made, stated=stated, scored=(right,))))
    moved = told(PipelineEvidence("", rows=made, stated=stated, scored=(wrong, replace(right, name="step 4", step=4))))
    assert moved.told[0].fault == "reference moves along"
    assert "step 4 agrees with them" in moved.told[0].because
    own = tuple(replace(row, reference=row.current) for row in made)
    before = (OptimizerEvidence(2, 2, 1e-3, 1e-4),)
    assert (
        told(PipelineEvidence("", rows=own, stated=stated, optimizer=before)).told[0].fault == "reference moves along"
    )
    assert sound(told(PipelineEvidence("", rows=made, stated=stated, optimizer=before)))
    still = (OptimizerEvidence(2, 2, 0.0, 1e-4),)  # no gradient yet: the policy is where it began
    assert told(PipelineEvidence("", rows=own, stated=stated, optimizer=still)).status == "cannot tell"


def test_norms_taken_again() -> None:
    """‖g + β h‖ with |g|² = 4, |h|² = 1, g·h = 0.5."""
    right = (4 + 2 * KL * 0.5 + KL**2) ** 0.5
    for logged, words in (
        (right, ""), (right * 1.0005, ""), ((4 - 2 * KL * 0.5 + KL**2) ** 0.5, "opposite sign"), (2.0, "without the"),
        (4 * right, "over 4 passes"), (1.01 * right, "recomputed"),
    ):  # fmt: skip
        seen = GradientEvidence(3, logged, 4.0, 1.0, 0.5, 8, "step 2")
        result = told(PipelineEvidence("", stated=Stated(kl=KL, accumulation=4), gradients=(seen,)))
        assert result.status == "broken" if words else sound(result)
        assert not words or words in result.told[0].because


@pytest.mark.parametrize(("counts", "second", "lost"), [
    ((1, 2, 3), (1.0, 1.1, 1.2), None),
    ((1, 51, 101), (1.0, 1.1, 1.2), None),
    ((1, 2, 1), (1.0, 1.1, 0.2), 3),
    ((1, 2, 3), (1.0, 1.1, 0.2), 3),
    ((1, 21, 71), (1.0, 1.1, 1.2), 51),
])  # fmt: skip
def test_the_state_of_the_optimizer(counts: Any, second: Any, lost: int | None) -> None:
    """Its count falls or lags, or its moments fall faster than they can."""
    steps = (1, 2, 3) if counts[2] < 4 else (1, 51, 101)
    seen = tuple(map(OptimizerEvidence, steps, map(float, counts), second))
    result = told(PipelineEvidence("", stated=Stated(beta2=0.999), optimizer=seen), "resume")
    assert sound(result) if lost is None else result.status == "broken"
    assert lost is None or (result.told[0].fault, result.told[0].onset) == ("optimiser state lost", lost)


def test_prompts_drawn_again_within_an_epoch() -> None:
    """Twelve prompts, four in a batch: those of step 1 may come back at step 4, and not at step 3."""
    stated = Stated(data=12, prompts=4, interval=1)
    for step, status in ((3, "broken"), (4, "cannot tell")):  # as there is no restart
        made = [
            Rollout("", at, prompt=name) for at, names in ((1, "abcd"), (2, "efgh"), (step, "abcd")) for name in names
        ]
        result = told(PipelineEvidence("", rows=tuple(made), stated=stated), "resume")
        assert result.status == status
        assert sound(result) if step == 4 else (result.told[0].fault, result.told[0].onset) == ("repeated data", 3)
        last = tuple(row for row in made if row.step == step)
        before = {1: frozenset("abcd"), 2: frozenset("efgh")}
        assert told(PipelineEvidence("", rows=last, stated=stated, earlier=before), "resume").status == status


def test_data_that_hold_prompts_twice_are_not_said_to_be_repeated() -> None:
    """One prompt of four comes again, at another distance each time."""
    batches = {1: "abcd", 2: "efgh", 3: "aijk", 4: "lemn", 5: "opaq"}
    made = tuple(Rollout("", step, prompt=name) for step, names in batches.items() for name in names)
    result = told(PipelineEvidence("", rows=made, stated=Stated(data=20, prompts=4, interval=1)), "resume")
    assert result.status == "cannot tell"


def test_settings_of_other_names_are_refused(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt setting is named with the nearest one; those of trainers are taken."""
    import json

    from grposcope.cli import main

    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps({"completion": "a", "reward": float(i)}) + "\n" for i in range(4)))
    assert main(["verify", str(path), "--set", "num_generation=4"]) == 2
    assert "did you mean num_generations?" in capsys.readouterr().err
    assert main(["verify", str(path), "--set", "num_generations=4", "--set", "loss_type=grpo"]) == 2
    assert "Cannot tell" in capsys.readouterr().out


def test_a_factor_is_named_at_the_first_step_where_the_kl_term_is_zero() -> None:
    """The policy is its reference, so that no coefficient of the KL term can be seen, and none is called missing."""
    given = drawn()
    given["reference"] = given["logp"].clone()
    quarter = rows(given, derivative(recipes.GRPO, given) / 4, parts=4)
    result = told(PipelineEvidence("", rows=quarter, stated=Stated(loss=StatedLoss(), kl=KL, accumulation=4)))
    assert result.status == "broken"
    assert any("0.25 times as large" in one.because and "4 passes twice" in one.because for one in result.told)
    assert not any("no KL term" in one.because for one in result.told)
