"""Parquet files into tables of Arrow. pyarrow is imported when a file is read; without it, a message says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole

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
