"""Parquet files into tables of Arrow. pyarrow is imported when a file is read; without it, a message says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole
from grposcope.core.run import Floats

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""


def column_names(path: Path) -> tuple[str, ...]:
    """Names of the columns of a file; empty where it cannot be read."""
    try:
        return tuple(_opened(path).schema_arrow.names)
    except UserError:
        return ()


def table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The columns (all by default) of a small file; UserError where it cannot be read or lacks one of them."""
    file = _opened(path)
    import pyarrow as pa

    lacking = [name for name in columns or () if name not in file.schema_arrow.names]
    if lacking:
        raise UserError(f"{path} lacks the column {lacking[0]!r}")
    try:
        content = file.read(columns, use_threads=False)  # of a small file, where threads would only cost time
        content.validate(full=True)  # that texts are UTF-8
        return content
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _opened(path: Path) -> pq.ParquetFile:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise UserError(f"{path}: reading Parquet needs pyarrow; pip install pyarrow") from None
    try:
        return pq.ParquetFile(pa.BufferReader(read_whole(path)))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last of a name of a column
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> UserError:
    first = (str(error).splitlines() or ["unknown"])[0]
    return UserError(f"{path}: cannot be read ({first}); delete it or copy it again")


def number_columns(rows: pa.Table, without: Sequence[str]) -> dict[str, Floats]:
    """Columns of numbers as float64, NaN for null; those named in `without` and all others are left out."""
    import pyarrow as pa

    return {
        name: np.asarray(rows[name].cast(pa.float64(), safe=False).to_numpy(), np.float64)
        for name in rows.column_names
        if name not in without and (pa.types.is_floating(rows[name].type) or pa.types.is_integer(rows[name].type))
    }
