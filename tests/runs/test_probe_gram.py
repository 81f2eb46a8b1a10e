"""The probe's file: what is written is read, and what is damaged is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grposcope.errors import UserError
from grposcope.runs.probe import read_gram, write_gram
from grposcope.ustat import moments


def arrays(prompts: int = 3, group: int = 4) -> dict:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(prompts * group, 5))
    return {
        "gram": scores @ scores.T,
        "rewards": (rng.random((prompts, group)) < 0.5).astype(float),
        "truncated": rng.random((prompts, group)) < 0.2,
        "layers": np.stack([scores[:, :2] @ scores[:, :2].T, scores[:, 2:] @ scores[:, 2:].T]),
        "layer_names": ("first", "second"),
    }


def test_round_trip(tmp_path: Path) -> None:
    given = arrays()
    path = write_gram(tmp_path / "probe", **given)
    assert path == tmp_path / "probe" / "gram.npz"
    found = read_gram(tmp_path / "probe", layers=True)
    for name in ("gram", "rewards", "truncated", "layers"):
        assert np.array_equal(getattr(found, name), given[name])
    assert found.layer_names == given["layer_names"]
    assert read_gram(tmp_path / "probe").layers is None
    assert sorted(p.name for p in path.parent.iterdir()) == ["gram.npz"]


def test_truncated_may_be_left_out(tmp_path: Path) -> None:
    given = arrays()
    write_gram(tmp_path, given["gram"], given["rewards"])
    assert not read_gram(tmp_path).truncated.any()


def test_without_truncated_equals_never_drawn(tmp_path: Path) -> None:
    given = arrays(3, 8)
    given["truncated"][:] = np.arange(8) >= 6
    write_gram(tmp_path, **given)
    kept = read_gram(tmp_path, layers=True).without_truncated()
    inside = (np.arange(24) % 8) < 6
    expected = moments.from_gram(given["gram"][inside][:, inside], given["rewards"][:, :6])
    assert moments.from_gram(kept.gram, kept.rewards).sigma1.value == pytest.approx(expected.sigma1.value, rel=1e-10)
    assert kept.layers is not None
    assert not kept.layers[:, ~inside].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gram": np.eye(11)}, r"gram has shape \(11, 11\)"),
        ({"rewards": np.ones(12)}, r"rewards has shape \(12,\)"),
        ({"truncated": np.ones((2, 2), bool)}, "truncated has shape"),
        ({"layer_names": ("only",)}, "layers has shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_before_writing(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_gram(tmp_path, **{**arrays(), **change})
    assert not list(tmp_path.iterdir())


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        read_gram(tmp_path)
    path = tmp_path / "gram.npz"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UserError, match="cannot be read"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)))
    with pytest.raises(UserError, match="no array 'gram'"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)), gram=np.array([[object()] * 4] * 4))
    with pytest.raises(UserError, match="cannot be read"):
        read_gram(tmp_path)
    np.savez(path, rewards=np.ones((2, 2)), gram=np.eye(4, dtype=int))
    with pytest.raises(UserError, match="not floating-point"):
        read_gram(tmp_path)
