"""Recorded log-probabilities against those of checkpoints, and which checkpoint wrote what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import toy_tokens

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.signs.rollouts import drawn_tokens, numerics
from grposcope.signs.rollouts.claims import checkpoints, weights
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested


def of_weights(evidence: PipelineEvidence) -> Finding:
    found = next(iter(weights.PROOF.check(evidence)))
    assert was_tested(found)
    return found


def test_k3_is_the_divergence_by_listing_every_token() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.2, 0.3])
    assert (q * weights.k3(np.log(p / q))).sum() == pytest.approx((q * np.log(q / p)).sum())


def test_equal_weights_hold_and_rounded_ones_within_their_format() -> None:
    assert of_weights(toy_tokens.evidence(128)).p == 1.0
    noisy = toy_tokens.evidence(128, change=toy_tokens.rounded(0.02))
    assert of_weights(noisy).p > 0.5
    strict = of_weights(replace(noisy, stated=replace(noisy.stated, precision="float32")))
    assert strict.status == "possible"
    assert strict.p < 1e-6


def test_other_weights_are_broken_and_the_checkpoint_that_explains_them_is_named() -> None:
    evidence = toy_tokens.evidence(128, writers=(0, 0, 0), checkpoints=3, moved=0.3)
    found = of_weights(evidence)
    assert found.fault == "weights never arrived"
    assert found.p < 1e-6
    assert found.onset == 2
    assert "step 0" in found.because
    alone = of_weights(replace(evidence, scored=evidence.scored[2:]))
    assert alone.fault == "wrong weights at the sampler"
    assert "or given checkpoint" in alone.because


@pytest.mark.parametrize("old_of", ["draw", "step", "neither"])
def test_old_log_probabilities_of_stale_rollouts(old_of: str) -> None:
    """Drawn by the first weights two steps ago: old ones may be of those or of the weights before the step alone."""
    evidence = toy_tokens.evidence(128, writers=(0, 1, 0), checkpoints=3, moved=0.3)
    rows = [replace(row, version=0.0) if row.step == 3 else row for row in evidence.rows]
    checkpoint = {"draw": 0, "step": 2, "neither": 1}[old_of]
    rows = [
        replace(row, old=evidence.scored[checkpoint if row.step == 3 else row.step - 1].logp[place])
        for place, row in enumerate(rows)
    ]
    of_sampler, of_old = weights.PROOF.check(replace(evidence, rows=tuple(rows)))
    assert of_sampler.p == 1
    assert of_old.p == 1 if old_of != "neither" else of_old.p < 1e-3


def test_log_probabilities_of_another_temperature_are_named() -> None:
    evidence = toy_tokens.evidence(128)
    at = toy_tokens.evidence(128, change=toy_tokens.tempered(0.7))
    found = of_weights(replace(evidence, rows=at.rows, scored=at.scored))
    assert found.fault == "sampler temperature differs"
    assert "0.7" in found.because


def test_processed_log_probabilities_are_named() -> None:
    found = of_weights(toy_tokens.evidence(128, change=toy_tokens.top_k(6)))
    assert (found.fault, found.brief) == ("truncated sampler", "log-probabilities after truncation")
    assert found.status == "possible"


def test_without_recorded_log_probabilities_it_cannot_be_told() -> None:
    (found,) = weights.PROOF.check(toy_tokens.evidence(16, recorded=False))
    assert not was_tested(found)
    assert "log-probabilities were not recorded" in found.because
    (none,) = weights.PROOF.check(replace(toy_tokens.evidence(16), scored=()))
    assert not was_tested(none)


def test_nan_is_left_out() -> None:
    evidence = toy_tokens.evidence(64)
    rows = tuple(replace(row, sampler=np.where(np.arange(6) == 2, np.nan, row.sampler)) for row in evidence.rows)
    assert "320 tokens" in of_weights(replace(evidence, rows=rows)).because


def of_tokens(evidence: PipelineEvidence) -> Finding:
    found = next(iter(checkpoints.PROOF.check(evidence)))
    assert was_tested(found)
    return found


@pytest.mark.parametrize(
    ("writers", "fault", "said"),
    [((0, 0, 0, 0), "weights never arrived", "step 0"), ((0, 1, 2, 2), "wrong weights at the sampler", "step 2"),
     ((0, 0, 1, 2), "stale sampler", "1 step behind")],
)  # fmt: skip
def test_who_wrote_the_rollouts_is_found_from_tokens_alone(writers: tuple[int, ...], fault: str, said: str) -> None:
    evidence = toy_tokens.evidence(96, writers=writers, checkpoints=4, moved=0.5, recorded=False)
    found = of_tokens(evidence)
    assert (found.fault, found.p < 1e-3) == (fault, True)
    assert said in found.because
    since = next(step for step, writer in enumerate(writers, 1) if writer != step - 1)
    assert found.onset is not None
    assert abs(found.onset - since) <= 0


def test_weights_that_were_trained_on_the_rows_are_no_alternative_by_tokens() -> None:
    """They make them likelier, whoever drew them: only recorded log-probabilities say who did."""
    every = toy_tokens.logits(96, 1, 0.0, 3)
    chances, random = toy_tokens.normalized(np.exp(every[0])), np.random.default_rng(4)
    picked = (
        (random.random((96, toy_tokens.LENGTH, 1)) > chances.cumsum(-1)).sum(-1).clip(max=toy_tokens.VOCABULARY - 1)
    )
    after = every[0] + 2.0 * (np.eye(toy_tokens.VOCABULARY)[picked] - chances)
    log = np.log(np.take_along_axis(chances, picked[..., None], -1)[..., 0])
    rows = tuple(Rollout(f"row {i}", 1, str(i // 4), prompt_ids=np.array([1]), completion_ids=ids, sampler=log[i])
                 for i, ids in enumerate(picked))  # fmt: skip
    scored = toy_tokens.scored(np.stack([every[0], after]), list(picked))
    likelier = sum(float((b - a).sum()) for a, b in zip(scored[0].logp, scored[1].logp, strict=True))
    assert likelier > 50
    for steps in ((0, 1), (None, None)):
        both = tuple(replace(one, step=step) for one, step in zip(scored, steps, strict=True))
        evidence = PipelineEvidence("toy", rows=rows, scored=both)
        blind = replace(evidence, rows=tuple(replace(row, sampler=None) for row in rows))
        (untold,) = checkpoints.PROOF.check(blind)
        assert not was_tested(untold)
        (told,) = checkpoints.PROOF.check(evidence)
        assert told.status == "excluded"
    before = tuple(replace(one, step=step, untrained=step is None) for one, step in zip(scored, (0, None), strict=True))
    assert was_tested(next(iter(checkpoints.PROOF.check(replace(blind, scored=before)))))


def test_rollouts_of_a_step_before_all_checkpoints_are_no_checkpoint_s() -> None:
    evidence = toy_tokens.evidence(8, writers=(0,), checkpoints=2)
    later = replace(evidence, scored=tuple(replace(one, step=10 * k) for k, one in enumerate(evidence.scored, 1)))
    assert (drawn_tokens.stated(later) == -1).all()
    of_15 = replace(later, rows=tuple(replace(row, step=15) for row in later.rows))
    assert (drawn_tokens.stated(of_15) == 0).all()
    assert (drawn_tokens.stated(replace(of_15, named=False)) == -1).all()
    unnumbered = replace(later, scored=tuple(replace(one, step=None) for one in later.scored), named=False)
    assert (drawn_tokens.stated(unnumbered) == -1).all()


def test_the_true_checkpoints_hold_and_what_is_too_near_is_not_told() -> None:
    evidence = toy_tokens.evidence(96, writers=(0, 1, 2), checkpoints=3, moved=0.5)
    every = list(checkpoints.PROOF.check(evidence))
    assert len(every) == 2
    assert all(was_tested(one) and one.p > 0.05 for one in every)
    near = toy_tokens.evidence(96, writers=(0, 0, 0), checkpoints=3, moved=0.01)
    blind = tuple(replace(row, sampler=None) for row in near.rows)
    (tokens,) = checkpoints.PROOF.check(replace(near, rows=blind))
    assert not was_tested(tokens)
    assert "cannot tell the checkpoints apart" in tokens.because
    (recorded,) = checkpoints.PROOF.check(near)
    assert was_tested(recorded)
    assert recorded.p < 1e-6
    assert recorded.fault != "step numbers differ"


def test_the_likelihood_ratio_of_a_path_has_expectation_one() -> None:
    """Over all pairs of tokens of a second row, given a first one, without numerics; less with them."""
    logits = toy_tokens.logits(2, 2, 0.7, 5)[:, :, :1]
    p = toy_tokens.normalized(np.exp(logits))
    path = checkpoints.WriterPath("frozen", 0, np.array([0, 0]))
    exact, widened = 0.0, 0.0
    for y in range(toy_tokens.VOCABULARY):
        sums = np.log(p[:, [0, 1], 0, [3, y]])
        squares = (sums - sums[1]) ** 2
        given = (sums, squares, np.ones(2), np.array([1, 1]), path)
        exact += p[1, 1, 0, y] * np.exp(checkpoints.ratios(*given, numerics.SamplerNumerics("exact", 0.0, 0.0))[1])
        widened += p[1, 1, 0, y] * np.exp(checkpoints.ratios(*given, numerics.of("int8"))[1])
    assert exact == pytest.approx(1.0)
    assert widened < 0.999


def test_versions_say_who_should_have_drawn() -> None:
    evidence = toy_tokens.evidence(16, writers=(0, 0), checkpoints=2, moved=0.5)
    assert drawn_tokens.stated(evidence).tolist() == [0] * 16 + [1] * 16
    versions = tuple(replace(row, version=0.0) for row in evidence.rows)
    assert drawn_tokens.stated(replace(evidence, rows=versions)).tolist() == [0] * 32
    unknown = tuple(replace(one, step=None) for one in evidence.scored)
    assert drawn_tokens.stated(replace(evidence, scored=unknown)).tolist() == [0] * 32


def test_tool_output_is_not_what_the_sampler_drew() -> None:
    evidence = toy_tokens.evidence(1)
    some = np.array([True, False, True, True, True, True])
    row = evidence.rows[0]
    assert drawn_tokens.sampled(replace(row, mask=some), evidence.scored[0], 0).tolist() == some.tolist()
    assert drawn_tokens.sampled(replace(row, mask=~some & False), evidence.scored[0], 0).all()
