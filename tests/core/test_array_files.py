"""Arrays from files that are damaged, encrypted, packed in unknown ways, or larger than they look: one line each."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grposcope.core import array_files
from grposcope.core.array_files import read_arrays
from grposcope.core.errors import UserError


def archive(**arrays: np.ndarray) -> bytearray:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return bytearray(out.getvalue())


def changed(offset: int, value: int) -> bytes:
    """An archive whose headers have another byte, at this offset after the local mark and two further in the other."""
    content = archive(gram=np.eye(3))
    for mark, at in ((b"PK\x03\x04", offset), (b"PK\x01\x02", offset + 2)):
        content[content.find(mark) + at] = value
    return bytes(content)


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda: changed(6, 1), "encrypted"),
        (lambda: changed(8, 99), "compression method is not supported"),
        (lambda: changed(4, 200), "zip file version"),
        (lambda: bytes(archive(gram=np.eye(3))[:60]), "not a zip file"),
        (lambda: saved(np.array([None, {}], object)), "pickle"),
        (lambda: saved(np.eye(3))[:-9], "cannot be read"),
        (lambda: b"\x93NUMPY\x01\x00\xff\xff{" + b"(" * 60_000, "cannot be read"),
        (lambda: b"a,b\n1,2\n", "is not a NumPy array"),
        (lambda: b"", "is not a NumPy array"),
    ],
)
def test_what_holds_no_arrays_is_said_in_a_line(content: Callable[[], bytes], said: str, tmp_path: Path) -> None:
    path = tmp_path / "gram.npz"
    path.write_bytes(content())
    with pytest.raises(UserError, match=rf"gram\.npz .*{said}.*; write it again"):
        read_arrays(path, "write it again")


def test_more_than_memory_holds_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gram.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("gram.npy", saved(np.zeros((300, 300))))
        packed.writestr("rewards.npy", saved(np.zeros(3)))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(array_files, "_LARGEST", 100_000)
    with pytest.raises(UserError, match=r"holds 0\.0 GB of arrays, more than is read; write it again"):
        read_arrays(path, "write it again")
    assert list(read_arrays(path, "", lambda name: name == "rewards")) == ["rewards"]


def test_the_array_of_a_file_has_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(2))
    assert read_arrays(tmp_path / "a.npy", "")[""].tolist() == [[1, 0], [0, 1]]
