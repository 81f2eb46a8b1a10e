"""A claim about a pipeline, the tests of it, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from grposcope.instruments.verify.evidence import PipelineEvidence

ClaimStatus = Literal["broken", "holds", "cannot tell"]


@dataclass(frozen=True)
class ClaimTest:
    """One way in which a claim could be broken, and whether it is.

    fault: a short name of the fault that this test finds, such as "shuffled rewards". p: of what was seen if the claim
    held, for tests of chance; NaN for tests that are exact, which `broken` decides alone. broken: whether what was seen
    is the fault; a test of chance is told only where it also passes the joint limit. evidence: what was seen if it is
    broken, a sentence. held: what was seen if it is not, with the size of fault that would have been found, a sentence.
    since: first step with the fault. effect: what it does to the gradient. remedy: a command.
    """

    fault: str
    broken: bool
    evidence: str
    held: str
    effect: str
    remedy: str
    p: float = math.nan
    since: int | None = None


@dataclass(frozen=True)
class NotTestable:
    """Why a claim, or one way of breaking it, cannot be tested, and what to log: a sentence.

    A test that saw no data is none, nor is one on data in which its fault could not show. What a pipeline does not
    have, such as tools, needs no test and no reason.
    """

    reason: str


ClaimFunction = Callable[[PipelineEvidence], Iterator["ClaimTest | NotTestable"]]


@dataclass(frozen=True)
class Claim:
    """Something that a pipeline says of itself.

    name: a key in lower case with hyphens. title: the claim as a sentence. needs: the evidence that it takes, in words
    for a table. function: yields its tests, or why there is none.
    """

    name: str
    title: str
    needs: str
    function: ClaimFunction


@dataclass(frozen=True)
class ClaimResult:
    """What became of a claim: broken if one of its tests is; holds if all that it names were made; else cannot tell.

    told: the tests that were made, the broken ones first. untested: why others that the claim names could not be made;
    where there are both and none is broken, the claim was tested in part (`coverage.tested_in_part`).
    """

    claim: Claim
    status: ClaimStatus
    told: tuple[ClaimTest, ...]
    untested: tuple[str, ...]
