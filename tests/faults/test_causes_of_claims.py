"""Claims that other claims explain are told behind these."""

from __future__ import annotations

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding
from grposcope.faults.judge_rollouts import causes_first


def proof(name: str) -> Proof:
    return Proof(name, f"The {name} is right", "rollouts", lambda evidence: ())


SAMPLING, TOKENS, CHECKPOINTS, REWARDS = map(proof, ("sampling", "tokens", "checkpoints", "rewards"))
HOLDS = (Finding("mask off by one", "excluded"),)
UNLIKELY = (Finding("unlikely tokens", "present"),)
STALE = (Finding("stale sampler", "present", explains=("unlikely tokens",)),)


def test_a_claim_that_another_one_explains_stands_behind_it() -> None:
    claims = {SAMPLING: UNLIKELY, TOKENS: HOLDS, CHECKPOINTS: STALE, REWARDS: HOLDS}
    assert list(causes_first(claims)) == [TOKENS, CHECKPOINTS, SAMPLING, REWARDS]


def test_the_order_stays_where_nothing_that_explains_is_shown() -> None:
    possible = (Finding("stale sampler", "possible", explains=("unlikely tokens",)),)
    for found in (HOLDS, possible):
        claims = {SAMPLING: UNLIKELY, TOKENS: HOLDS, CHECKPOINTS: found, REWARDS: HOLDS}
        assert list(causes_first(claims)) == [SAMPLING, TOKENS, CHECKPOINTS, REWARDS]
    alone = {SAMPLING: HOLDS, TOKENS: HOLDS, CHECKPOINTS: STALE, REWARDS: UNLIKELY}
    assert list(causes_first(alone)) == [SAMPLING, TOKENS, CHECKPOINTS, REWARDS]
