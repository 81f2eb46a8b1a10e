"""Recorded log-probabilities against those of checkpoints, and which checkpoint wrote what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import toy_tokens

from grposcope.instruments.verify import drawn_tokens, numerics
from grposcope.instruments.verify.claim import ClaimTest, NotTestable
from grposcope.instruments.verify.claims import checkpoints, weights
from grposcope.instruments.verify.evidence import PipelineEvidence


def of_weights(evidence: PipelineEvidence) -> ClaimTest:
    found = next(iter(weights.tests(evidence)))
    assert isinstance(found, ClaimTest)
    return found


def test_k3_is_the_divergence_by_listing_every_token() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.2, 0.3])
    assert (q * weights.k3(np.log(p / q))).sum() == pytest.approx((q * np.log(q / p)).sum())


def test_equal_weights_hold_and_rounded_ones_within_their_format() -> None:
    assert of_weights(toy_tokens.evidence(128)).p == 1.0
    noisy = toy_tokens.evidence(128, change=toy_tokens.rounded(0.02))
    assert of_weights(noisy).p > 0.5
    strict = of_weights(replace(noisy, stated=replace(noisy.stated, precision="float32")))
    assert strict.broken
    assert strict.p < 1e-6


def test_other_weights_are_broken_and_the_checkpoint_that_explains_them_is_named() -> None:
    evidence = toy_tokens.evidence(128, writers=(0, 0, 0), checkpoints=3, moved=0.3)
    found = of_weights(evidence)
    assert found.fault == "other weights"
    assert found.p < 1e-6
    assert found.since == 2
    assert "step 0" in found.evidence
    alone = of_weights(replace(evidence, scored=evidence.scored[2:]))
    assert alone.broken
    assert "or given checkpoint" in alone.evidence


def test_log_probabilities_of_another_temperature_are_named() -> None:
    evidence = toy_tokens.evidence(128)
    at = toy_tokens.evidence(128, change=toy_tokens.tempered(0.7))
    found = of_weights(replace(evidence, rows=at.rows, scored=at.scored))
    assert found.fault == "log-probabilities of another temperature"
    assert "0.7" in found.evidence


def test_processed_log_probabilities_are_named() -> None:
    found = of_weights(toy_tokens.evidence(128, change=toy_tokens.top_k(6)))
    assert found.fault == "log-probabilities after truncation"
    assert found.broken


def test_without_recorded_log_probabilities_it_cannot_be_told() -> None:
    (found,) = weights.tests(toy_tokens.evidence(16, recorded=False))
    assert isinstance(found, NotTestable)
    assert "log-probabilities were not recorded" in found.reason
    (none,) = weights.tests(replace(toy_tokens.evidence(16), scored=()))
    assert isinstance(none, NotTestable)


def test_nan_is_left_out() -> None:
    evidence = toy_tokens.evidence(64)
    rows = tuple(replace(row, sampler=np.where(np.arange(6) == 2, np.nan, row.sampler)) for row in evidence.rows)
    assert "320 tokens" in of_weights(replace(evidence, rows=rows)).held


def of_tokens(evidence: PipelineEvidence) -> ClaimTest:
    found = next(iter(checkpoints.tests(evidence)))
    assert isinstance(found, ClaimTest)
    return found


@pytest.mark.parametrize(
    ("writers", "fault", "said"),
    [((0, 0, 0, 0), "frozen sampler", "step 0"), ((0, 1, 2, 2), "frozen sampler", "step 2"),
     ((0, 0, 1, 2), "stale sampler", "1 step behind"), ((1, 2, 3, 3), "numbering of steps", "after")],
)  # fmt: skip
def test_who_wrote_the_rollouts_is_found_from_tokens_alone(writers: tuple[int, ...], fault: str, said: str) -> None:
    evidence = toy_tokens.evidence(96, writers=writers, checkpoints=4, moved=0.5, recorded=False)
    found = of_tokens(evidence)
    assert (found.fault, found.p < 1e-3) == (fault, True)
    assert said in found.evidence
    since = next(step for step, writer in enumerate(writers, 1) if writer != step - 1)
    assert found.since is not None
    assert abs(found.since - since) <= 0


def test_the_true_checkpoints_hold_and_what_is_too_near_is_not_told() -> None:
    evidence = toy_tokens.evidence(96, writers=(0, 1, 2), checkpoints=3, moved=0.5)
    every = list(checkpoints.tests(evidence))
    assert len(every) == 2
    assert all(isinstance(one, ClaimTest) and one.p > 0.05 for one in every)
    near = toy_tokens.evidence(96, writers=(0, 0, 0), checkpoints=3, moved=0.01)
    blind = tuple(replace(row, sampler=None) for row in near.rows)
    (tokens,) = checkpoints.tests(replace(near, rows=blind))
    assert isinstance(tokens, NotTestable)
    assert "cannot tell the checkpoints apart" in tokens.reason
    (recorded,) = checkpoints.tests(near)
    assert isinstance(recorded, ClaimTest)
    assert recorded.p < 1e-6
    assert recorded.fault != "numbering of steps"


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
