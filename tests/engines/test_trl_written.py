"""What the loss and the sampler's log-probabilities say of masks, where a trainer of TRL has another or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

from grposcope.core.rollouts import Rollout
from grposcope.engines.trl.verifying import _as_drawn, _as_trained

DRAWN = np.array([1, 1, 1, 0, 0, 1, 1], bool)


def rollout(sampler: list[float], current: list[float] | None = None, **more: Any) -> Rollout:
    now = np.array(sampler if current is None else current)
    return Rollout(completion_ids=np.arange(len(sampler)), sampler=np.array(sampler), current=now, **more)


OWN = [-1.0, -0.5, -0.2, 0.0, 0.0, -0.3, -2.0]
SCORED = [-1.0, -0.5, -0.2, -4.0, -3.0, -0.3, -2.0]


def test_tokens_of_a_tool_without_a_mask_are_those_that_no_sampler_drew() -> None:
    told = _as_drawn([rollout(OWN, SCORED)] * 8)
    for row in told:
        assert row.written is not None
        assert row.written.tolist() == DRAWN.tolist()
        assert row.turns is not None
        assert row.turns.tolist() == [0, 0, 0, 0, 0, 1, 1]
        assert row.sampler is not None
        assert np.isnan(row.sampler[3:5]).all()


@pytest.mark.parametrize(
    ("sampler", "current"),
    [
        ([0.0] * 7, SCORED),  # a greedy sampler
        (OWN, OWN),  # a policy that is sure of these tokens
        (OWN, [value - 1 for value in SCORED]),  # another policy drew them all
        (SCORED, SCORED),  # one turn, or log-probabilities of what a tool wrote too
    ],
)
def test_nothing_is_told_by_other_log_probabilities(sampler: list[float], current: list[float]) -> None:
    assert all(row.written is None for row in _as_drawn([rollout(sampler, current)] * 8))


def test_few_tokens_tell_nothing() -> None:
    assert _as_drawn([rollout(OWN, SCORED)])[0].written is None


def test_a_drawn_token_that_the_mask_of_tools_leaves_out_is_the_end_of_a_turn() -> None:
    mask = DRAWN.copy()
    mask[2] = mask[6] = False
    told = _as_drawn([rollout(OWN, written=mask, mask=mask)])[0]
    assert told.written is not None
    assert told.written.tolist() == DRAWN.tolist()
    assert told.mask is not None
    assert told.mask.tolist() == mask.tolist()


def test_log_probabilities_of_what_tools_wrote_change_no_mask() -> None:
    for sampler in (SCORED, [*SCORED[:3], -4.0, -3.0, *SCORED[5:]]):
        told = _as_drawn([rollout(sampler, written=DRAWN, mask=DRAWN)])[0]
        assert told.written is not None
        assert told.written.tolist() == DRAWN.tolist()


def test_the_mask_has_what_the_loss_has_a_derivative_of() -> None:
    weights = np.array([0.1, 0.1, 0.1, 0.1, 0.0, 0.0, np.nan])
    told = _as_trained(rollout(OWN, mask=np.array([1, 1, 1, 0, 0, 1, 1], bool), loss_weights=weights))
    assert told.mask is not None
    assert told.mask.tolist() == [True, True, True, True, False, True, True]
    assert _as_trained(rollout(OWN, loss_weights=weights)).mask is None
