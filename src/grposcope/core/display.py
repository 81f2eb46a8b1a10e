"""How runs, findings, answers and figures show themselves in a notebook, and become tables of pandas.

Core knows no page and no chart: what draws each kind is told to DRAWS by the package, and imported when asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grposcope.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

DRAWS: dict[str, tuple[str, str]] = {}
"""Kind (Run, Finding, Answer, Figure) -> the module and its function that draws one."""


def drawn(kind: str, value: Any) -> Any:
    """What draws this kind makes of a value; None where that part of the package is not there."""
    if kind not in DRAWS:
        return None
    module, function = DRAWS[kind]
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    return getattr(home, function)(value)


def frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Columns, arrays or lists, as a table of pandas; UserError where pandas is not installed."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise UserError("to_pandas needs the package pandas: pip install pandas") from None
    return pd.DataFrame(columns)
