"""Fields of settings that say how they are flags of a command line, which `commands.generic.declare` makes of them."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def flag(*, default: Any = None, group: str = "", **form: Any) -> Any:
    """A field of settings that is a flag.

    default: when the flag is not given. group: the heading of the help under which it stands, empty for that of all
    commands. form: what `argparse` is told besides the name and the type of the field: `help`, `metavar`, `choices`
    (functions that return those where it is costly to know them), `nargs`, `action`; `names` is what is typed where
    that is not the name of the field with two dashes, empty for an argument by its place; `dest` the attribute of the
    arguments where that is not the name of the field.
    """
    metadata = {"group": group, "form": form}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def flags_of(settings: type, *, unset: bool = False, **defaults: Any) -> Any:
    """A field that stands for all fields of `settings`, which are flags.

    unset: whether one that is not given is no attribute of the arguments. defaults: attributes that no flag sets.
    """
    return field(default_factory=settings, metadata={"fields": settings, "unset": unset, "defaults": defaults})
