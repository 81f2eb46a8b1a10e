"""Temperature and truncation from tokens alone: expectations by listing every token, and faults that are named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import toy_tokens

from grposcope.core.finding import Finding
from grposcope.instruments.verify import scoring
from grposcope.signs.rollouts import drawn_tokens, numerics
from grposcope.signs.rollouts.claims import sampling
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested
from grposcope.signs.rollouts.numerics import SamplerNumerics
from grposcope.signs.rollouts.sampling_grids import POWERS, TOP_KS, TOP_PS

EXACT = SamplerNumerics("exact", 0.0, 0.0)


def test_columns_against_brute_force() -> None:
    logits = 2 * np.random.default_rng(0).standard_normal((5, 12))
    p = toy_tokens.normalized(np.exp(logits / 0.7))
    for y in range(12):
        found = scoring._of_logits(torch.from_numpy(logits), torch.full((5,), y), 0.7).numpy()
        for row in range(5):
            own, order = p[row], np.sort(p[row])[::-1]
            log = np.log(own)
            likelier = own > own[y]
            assert found[row, :5] == pytest.approx(
                [log[y], -(own * log).sum(), (own * log**2).sum() - (own * log).sum() ** 2, likelier.sum(),
                 own[likelier].sum()]
            )  # fmt: skip
            at = 5 + len(POWERS)
            assert found[row, 5:at] == pytest.approx([math.log((own**beta).sum()) for beta in POWERS])
            assert found[row, at : at + len(TOP_KS)] == pytest.approx([order[k:].sum() for k in TOP_KS], abs=1e-12)
            nucleus = [order[np.searchsorted(order.cumsum(), p) + 1 :].sum() for p in TOP_PS]
            assert found[row, at + len(TOP_KS) :] == pytest.approx(nucleus, abs=1e-12)


def test_a_nucleus_beyond_the_likeliest_tokens_has_a_lower_bound() -> None:
    chances = torch.full((1, 1000), 1e-3, dtype=torch.float64)
    outside = torch.stack(scoring._outside(chances), -1)[0, len(TOP_KS) :]
    exact = [1 - math.ceil(p * 1000 - 1e-9) / 1000 for p in TOP_PS]
    assert all(low <= true + 1e-9 for low, true in zip(outside.tolist(), exact, strict=True))
    assert outside[0] == pytest.approx(0.5 - 1e-3)


def test_every_alternative_is_a_likelihood_ratio() -> None:
    """Its expectation under the policy is 1, by listing all tokens; widened by the numerics it is at most 1."""
    logits = toy_tokens.logits(1, 1, 0.0, 3)
    p = toy_tokens.normalized(np.exp(logits[0, 0, 0]))
    total, widened, drift = np.zeros(len(sampling.ALTERNATIVES)), np.zeros(len(sampling.ALTERNATIVES)), 0.0
    for y in range(toy_tokens.VOCABULARY):
        tokens = [np.array([y])]
        scored = toy_tokens.scored(logits[:, :, :1], tokens)
        row = toy_tokens.Rollout("row", completion_ids=tokens[0])
        evidence = PipelineEvidence("toy", rows=(row,), scored=scored)
        rows = drawn_tokens.rows_of(evidence)
        found = sampling.sums(evidence, rows, EXACT)
        total += p[y] * np.exp(found.ratios[:, 0])
        widened += p[y] * np.exp(sampling.sums(evidence, rows, numerics.of("int8")).ratios[:, 0])
        drift += p[y] * found.drift[0]
    assert total == pytest.approx(np.ones(len(total)))
    assert drift == pytest.approx(0.0, abs=1e-12)
    assert (widened < 1 + 1e-9).all()
    assert widened.min() < 0.999


def test_no_token_beyond_the_cut_has_the_probability_of_none() -> None:
    evidence = toy_tokens.evidence(32, change=toy_tokens.top_k(4))
    rows = drawn_tokens.rows_of(evidence)
    found = sampling.sums(evidence, rows, EXACT)
    place = sampling.ALTERNATIVES.index(sampling.SamplerAlternative("top-k", 4, 0.0))
    tails = np.concatenate(evidence.scored[0].outside_k)[:, TOP_KS.index(4)]
    assert found.beyond[TOP_KS.index(4)].sum() == 0
    assert math.exp(-found.ratios[place].sum()) == pytest.approx(np.prod(1 - tails))


def told(evidence: PipelineEvidence) -> Finding:
    (found,) = sampling.PROOF.check(evidence)
    assert was_tested(found)
    return found


def test_a_temperature_is_found_and_its_interval_holds_it() -> None:
    evidence = toy_tokens.evidence(256, change=toy_tokens.tempered(0.8))
    found = told(evidence)
    assert (found.fault, found.status) == ("sampler temperature differs", "possible")
    assert found.p < 1e-4
    beta, low, high = sampling.fitted_power(
        sampling.sums(evidence, drawn_tokens.rows_of(evidence), numerics.of("float32"))
    )
    assert low < 1 / 0.8 < high
    assert low < beta < high
    assert high - low < 0.25


def test_truncation_is_found_and_named() -> None:
    found = told(toy_tokens.evidence(256, change=toy_tokens.top_k(4)))
    assert (found.fault, found.brief) == ("truncated sampler", "top-k truncation")
    assert "the 4 likeliest" in found.because
    assert found.p < 1e-9
    stated = told(toy_tokens.evidence(256, change=toy_tokens.top_k(4), top_k=4))
    assert stated.status == "excluded"
    assert "as the settings say" in stated.because


def test_tokens_of_another_model_are_no_temperature() -> None:
    found = told(toy_tokens.evidence(64, change=lambda p: np.roll(p, 1, -1)))
    assert found.fault == "unlikely tokens"
    assert "chat template" in found.remedy


def test_a_sound_sampler_holds_with_what_would_have_been_seen() -> None:
    found = told(toy_tokens.evidence(128))
    assert found.p > 0.05
    assert "temperature of" in found.because
    assert "stated: 1" in found.because


def test_filtered_rollouts_are_not_judged() -> None:
    evidence = toy_tokens.evidence(64)
    (found,) = sampling.PROOF.check(replace(evidence, filtered=True))
    assert not was_tested(found)
    assert "filtered" in found.because
    alive = [replace(row, reward=float(i % 2)) for i, row in enumerate(toy_tokens.evidence(256).rows)]
    # half right in groups of 8: 2^-7 of them are dead, so that 32 without any are no evidence of a filter
    assert not drawn_tokens.selection(replace(evidence, rows=tuple(alive)))
    easy = [replace(row, reward=float(i % 8 > 0)) for i, row in enumerate(toy_tokens.evidence(256).rows)]
    assert "dead groups" in drawn_tokens.selection(replace(evidence, rows=tuple(easy)))
