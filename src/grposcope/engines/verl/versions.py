"""Which versions of verl are supported."""

from __future__ import annotations

import re
from importlib import metadata

from grposcope.core.errors import UserError

LOWEST, BELOW = (0, 9, 1), (0, 10)
"""Versions from LOWEST, and below BELOW, are supported."""


def check(version: str | None = None) -> None:
    """UserError where the version of verl, by default the one installed, is not supported."""
    version = metadata.version("verl") if version is None else version
    match = re.match(r"\d+(?:\.\d+)*", version)
    number = tuple(map(int, match[0].split("."))) if match else ()
    if not LOWEST <= number < BELOW:
        raise UserError(
            f"verl {version} was found; GRPOscope supports verl {_named(LOWEST)} and later below {_named(BELOW)}: "
            f"pip install 'verl>={_named(LOWEST)},<{_named(BELOW)}'"
        )


def _named(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
