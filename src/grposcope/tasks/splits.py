"""Dividing one set of problems into training and held-out ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from grposcope.tasks.base import Problem, Split, is_heldout


def by_hash(problems: Sequence[Problem], split: Split) -> tuple[Problem, ...]:
    """The problems of a split; about 10 % are held out, by a hash of the prompt.

    Problems with the same prompt fall on the same side, and adding problems moves none of the
    others. Of two prompts or more at least one is on each side, whatever their hashes; a single
    prompt is for training.
    """
    prompts = {problem.prompt for problem in problems}
    heldout = {prompt for prompt in prompts if is_heldout(prompt)}
    if len(heldout) in (0, len(prompts)):
        heldout = {min(prompts, key=_digest)} if len(prompts) > 1 else set()
    return tuple(problem for problem in problems if (problem.prompt in heldout) == (split == "heldout"))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
