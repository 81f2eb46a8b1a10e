"""The laboratory: a small, exact GRPO trainer for one machine."""

import importlib
from typing import Any

__all__ = ["config", "loop"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
