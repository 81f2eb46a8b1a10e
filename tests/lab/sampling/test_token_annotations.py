"""Rollouts are selected, moved, joined, padded, gathered, kept and read again with every array that they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from random_batch import batch

from grposcope.engines.trl.scored_batch import of_all
from grposcope.instruments.gradient.weightings import _first_rollouts
from grposcope.lab.rollout_batch import LEFT_PADDED, PER_PROMPT, RolloutBatch, blank
from grposcope.lab.sampling.resumable_rollouts import _read, _write
from grposcope.lab.sampling.rollouts import joined

PAD = 0
NAMES = (
    "step_rewards", "step_ends", "prefix_values", "levels", "values", "other_logp", "collision", "turns", "states",
    "toy",
)  # fmt: skip


def annotated(prompts: int = 3, group: int = 2) -> RolloutBatch:
    """A batch with every array that rollouts may have, and an annotation that nobody knows, all numbers distinct."""
    rollouts, random = batch(prompts, group), torch.Generator().manual_seed(3)
    given = {name: torch.rand(rollouts.mask.shape, generator=random) for name in NAMES}
    given |= {"step_ends": given["step_ends"] < 0.5, "levels": (9 * given["levels"]).long(),
              "turns": (9 * given["turns"]).long(), "states": (9 * given["states"]).long()}  # fmt: skip
    own = {name: torch.rand(rollouts.mask.shape, generator=random) for name in ("logp", "entropy")}
    weights = {"weights": torch.rand(prompts, generator=random), "versions": torch.arange(prompts)}
    weights["stops"] = torch.arange(prompts * group)
    parts = {"components": torch.rand(prompts, group, 2, generator=random).double()}
    return RolloutBatch.of_arrays({**rollouts.arrays(), **own, **weights, **parts, **given})


WHOLE = annotated()
ROWS = torch.tensor([4, 5, 0, 1])

KEPT: dict[str, tuple[Callable[[Path], RolloutBatch], list[int]]] = {
    "take": (lambda folder: WHOLE.take(torch.tensor([2, 0])), [4, 5, 0, 1]),
    "to": (lambda folder: WHOLE.to("cpu"), [0, 1, 2, 3, 4, 5]),
    "rows": (lambda folder: WHOLE.rows(torch.tensor([5, 1])), [5, 1]),
    "columns": (lambda folder: WHOLE.columns(torch.tensor([1, 0])), [1, 0, 3, 2, 5, 4]),
    "first_rollouts": (lambda folder: _first_rollouts(WHOLE, 1), [0, 2, 4]),
    "annotated": (lambda folder: WHOLE.annotated(), [0, 1, 2, 3, 4, 5]),
    "joined": (lambda folder: joined([WHOLE.take(torch.tensor([n])) for n in range(3)], PAD), [0, 1, 2, 3, 4, 5]),
    "kept and read": (lambda folder: kept(folder), [0, 1, 2, 3, 4, 5]),
    "of all processes": (lambda folder: of_all(WHOLE, TWICE, PAD), [0, 1, 2, 3, 4, 5]),
}  # fmt: skip
"""What is done with rollouts, and the rows that come out."""

TWICE: Any = SimpleNamespace(
    num_processes=2,
    gather=lambda array: array,
    pad_across_processes=lambda array, dim, index, first: array,
)


def kept(folder: Path) -> RolloutBatch:
    """The rollouts as a probe keeps them until it is complete."""
    _write(folder / "drawn" / "000000.safetensors", {}, WHOLE, ["text"] * 6)
    found = _read(folder / "drawn" / "000000.safetensors", {}, 3, torch.device("cpu"))
    assert found is not None
    return found[0]


@pytest.mark.parametrize("name", KEPT)
def test_no_array_is_dropped(name: str, tmp_path: Path) -> None:
    done, rows = KEPT[name]
    given = done(tmp_path).arrays()
    assert given.keys() == WHOLE.arrays().keys() == {
        *(entry.name for entry in fields(RolloutBatch) if entry.name != "token_annotations"), *NAMES,
    }  # fmt: skip
    for array, before in WHOLE.arrays().items():
        if array not in PER_PROMPT:
            assert torch.equal(given[array], before[rows]), array
    assert torch.equal(given["rewards"].reshape(-1), WHOLE.rewards.reshape(-1)[rows])
    assert torch.equal(given["components"].reshape(-1, 2), WHOLE.arrays()["components"].reshape(-1, 2)[rows])
    for array in ("weights", "versions"):
        of_rows = given[array].repeat_interleave(len(rows) // len(given[array]))
        assert torch.equal(of_rows, WHOLE.arrays()[array][torch.tensor(rows) // 2]), array


def test_rollouts_of_other_widths_are_padded_where_they_have_no_token() -> None:
    short = WHOLE.take(torch.tensor([0]))
    short = short.each(lambda name, a: a if a.ndim == 1 or name in PER_PROMPT else a[:, :-2])
    both = joined([WHOLE, short], PAD)
    for name, array in both.arrays().items():
        if array.ndim == 2 and name not in PER_PROMPT:
            added = array[6:, :2] if name in LEFT_PADDED else array[6:, -2:]
            assert torch.equal(array[:6], WHOLE.arrays()[name])
            nothing = torch.full(added.shape, blank(name, PAD)).to(added)
            torch.testing.assert_close(added, nothing, equal_nan=True, msg=name)
    assert both.groups == (4, 2)
