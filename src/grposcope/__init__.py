"""GRPOscope: instrument panel and laboratory for group-relative policy optimization."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext grposcope`: runs show themselves in the notebook, as `report.notebook` draws them."""
    from grposcope.report import notebook

    notebook.register(shell)
