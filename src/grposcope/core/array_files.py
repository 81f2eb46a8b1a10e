"""Arrays from files that anybody may have written: .npy and .npz, without pickles, and no more than memory holds."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.core.files import opened
from grposcope.core.text import visible

_LARGEST = 1 << 30
"""Bytes of the arrays of a file, unpacked, beyond which none is read."""


def read_arrays(path: Path, remedy: str, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file by name, those that are `wanted`; of a .npy file the one array, under "".

    UserError, which ends with `remedy`, for a file that is not there, is damaged, packed in a way that is not known,
    encrypted, holds objects, or unpacks to more than 1 GiB.
    """
    try:
        with opened(path) as file:
            head = file.read(6)
            if not head.startswith((b"PK", b"\x93NUMPY")):
                raise UserError(f"{path} is not a NumPy array, nor an archive of some; {remedy}")
            size = _unpacked(file, head[:2] == b"PK", wanted)
            if size > _LARGEST:
                raise UserError(f"{path} holds {size / 1e9:,.1f} GB of arrays, more than is read; {remedy}")
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                return {"": np.asarray(loaded)}
            return {name: np.asarray(loaded[name]) for name in loaded.files if wanted(name)}
    except UserError:
        raise
    except Exception as error:  # of zipfile, its decompressors and NumPy's headers: of a dozen types
        reason = visible((str(error).splitlines() or [type(error).__name__])[0], 200)
        raise UserError(f"{path} cannot be read ({reason}); {remedy}") from None


def _unpacked(file: IO[bytes], packed: bool, wanted: Callable[[str], bool]) -> int:
    """Bytes that the file takes in memory, as it says itself."""
    file.seek(0)
    if not packed:
        return os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist() if wanted(member.filename.removesuffix(".npy")))
    file.seek(0)
    return size
