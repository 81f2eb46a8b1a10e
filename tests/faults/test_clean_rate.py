"""How often claims on tokens are called broken in sound pipelines: many toy policies, rounded as samplers are."""

from __future__ import annotations

import judged_claims
import pytest
import toy_tokens

RUNS = 500


@pytest.mark.slow
def test_at_most_one_in_twenty_sound_pipelines_is_called_broken() -> None:
    broken = 0
    for seed in range(RUNS):
        noise = (0.0, 0.005, 0.02)[seed % 3]  # none, less than bfloat16's, and bfloat16's of a model of 135 M
        evidence = toy_tokens.evidence(
            16, (0, 1, 2), 3, (0.02, 0.2, 1.0)[seed % 7 % 3], toy_tokens.rounded(noise, seed), seed % 2 == 0, 7 * seed
        )
        broken += any(one.status == "broken" for one in judged_claims.of(evidence).values())
    assert broken <= 0.05 * RUNS
