"""Functions that keep no graph: `torch.no_grad` and `torch.inference_mode` as decorators that need no torch to be read.

`@torch.no_grad()` asks torch for something while a module is imported; the modules behind a command's flags must not,
so that a wrong flag is told before torch is there (`core.deferred_imports`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def no_gradient(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function under `torch.no_grad`."""

    @wraps(function)
    def without(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with torch.no_grad():
            return function(*arguments, **named)

    return without
