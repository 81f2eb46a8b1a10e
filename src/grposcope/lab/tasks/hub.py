"""Rows of data sets of the Hugging Face hub, by the package `datasets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.installing import install


def rows(what: str, name: str, config: str | None, split: str | None, remedy: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a split, downloaded or taken from the cache.

    what: the task, for messages. config: of the data set; None where it has one only. split: None for `test` where
    there is one, else the only one. UserError, which ends with `remedy`, where this cannot be.
    """
    try:
        import datasets
    except ImportError:
        raise UserError(f"{what} from the hub needs the datasets package; {install('hub')}, {remedy}") from None
    try:
        dataset = datasets.load_dataset(name, *([config] if config else []), **({"split": split} if split else {}))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"{what} could not be loaded from the hub ({reason}); check the connection, {remedy}"
        ) from error
    if split or not hasattr(dataset, "keys"):
        return dataset
    splits = list(dataset.keys())
    if "test" not in splits and len(splits) > 1:
        raise UserError(f"{what} has the splits {', '.join(splits)}; name one, as {what},split={splits[0]}")
    return dataset["test" if "test" in splits else splits[0]]
