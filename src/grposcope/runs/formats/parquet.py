"""Parquet files into tables of Arrow; pyarrow is imported when one is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.run import Floats

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""


def column_names(path: Path) -> tuple[str, ...]:
    """Names of the columns of a file; empty where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return tuple(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return ()


def table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The columns (all by default) of a small file; UserError where it cannot be read or lacks one of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(path.read_bytes())) as file:  # threads would only cost
            lacking = [name for name in columns or () if name not in file.schema_arrow.names]
            if not lacking:
                return file.read(columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        first = (str(error).splitlines() or ["unknown"])[0]
        raise UserError(f"{path}: cannot be read ({first}); delete it or copy it again") from None
    raise UserError(f"{path} lacks the column {lacking[0]!r}")


def number_columns(rows: pa.Table, without: Sequence[str]) -> dict[str, Floats]:
    """Columns of numbers as float64, NaN for null; those named in `without` and all others are left out."""
    import pyarrow as pa

    return {
        name: np.asarray(rows[name].cast(pa.float64(), safe=False).to_numpy(), np.float64)
        for name in rows.column_names
        if name not in without and (pa.types.is_floating(rows[name].type) or pa.types.is_integer(rows[name].type))
    }
