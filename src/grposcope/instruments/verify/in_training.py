"""Claims tested while a run trains: every K steps the evidence of a batch is written down and judged at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.faults.judge import LEVEL
from grposcope.instruments.verify import own_loop, read, row_file
from grposcope.signs.rollouts.claims.resume import prompts_of
from grposcope.signs.rollouts.evidence import Grader, OptimizerEvidence, ScoredTokens, Stated

LINE = 400
"""Characters of a warning."""


def due(every: int, step: int, interval: int) -> bool:
    """Whether a batch that is fresh at `step`, for `interval` steps, is used at one of the steps 1, 1 + every, …"""
    return bool(every) and (1 - step) % every < interval


def _error_of(look: int) -> float:
    """Chance of a false alarm at the look with this number, from 1 on: over all looks together LEVEL."""
    return LEVEL / (look * (look + 1))


class TrainingVerifier:
    """Writes and judges batches of a run whose record is in `folder`.

    stated: what the settings say. done: optimiser steps that the run had when it was begun or resumed; what was written
    of later ones is taken out. grader: the reward function of the run, to be asked again. filtered: whether rollouts
    are left out before they come here. seconds: that all of it took.
    """

    def __init__(
        self, folder: Path, stated: Stated, done: int = 0, grader: Grader | None = None, filtered: bool | None = False
    ):
        self.folder, self.stated, self.grader, self.filtered = folder, stated, grader, filtered
        self.seconds = 0.0
        self._told: set[str] = set()
        row_file.cut_back(folder, done)
        row_file.write_stated(folder, stated, filtered)
        self._looks = len(row_file.files(folder))
        self._optimizer = list(row_file.read_optimizer(folder))
        self._prompts = _prompts(folder)

    def take(
        self,
        step: int,
        rows: Sequence[Rollout],
        scored: Sequence[ScoredTokens] = (),
        optimizer: OptimizerEvidence | None = None,
    ) -> list[str]:
        """Write the batch of `step` and judge it; a line for each claim that is newly broken.

        optimizer: what its state says after this step, or after the one before. A claim whose judging fails is
        told as that and ends nothing. Raises UserError where the disk refuses.
        """
        began = time.perf_counter()
        row_file.write(self.folder, step, rows)
        if optimizer is not None:
            row_file.append_optimizer(self.folder, optimizer)
            self._optimizer.append(optimizer)
        self._looks += 1
        try:
            result = own_loop.verify_batch(
                rows, self.stated, scored=scored, grader=self.grader, filtered=self.filtered,
                error=_error_of(self._looks), source=f"step {step}", optimizer=self._optimizer, earlier=self._prompts,
            )  # fmt: skip
        except Exception as error:  # the run goes on, whatever is wrong here
            self.seconds += time.perf_counter() - began
            return [visible(f"step {step}: the claims could not be tested: {type(error).__name__}: {error}", LINE)]
        self._prompts |= prompts_of(rows)
        row_file.append_claims(self.folder, _row(step, result))
        lines = []
        for claim in result.document["claims"]:
            if claim["status"] == "broken" and claim["claim"] not in self._told:
                self._told.add(claim["claim"])
                lines.append(visible(_line(step, claim), LINE))
        self.seconds += time.perf_counter() - began
        return lines


def _prompts(folder: Path) -> dict[int, frozenset[str]]:
    """Step -> prompts of the batches that a run has written before it was resumed."""
    prompts: dict[int, frozenset[str]] = {}
    for path in row_file.files(folder):
        with suppress(UserError):  # a line that was cut
            prompts |= prompts_of(read.rows(path))
    return prompts


def _row(step: int, result: Answer) -> dict[str, Any]:
    claims = {claim["claim"]: {"status": claim["status"], **_broken(claim, step), **_in_part(claim)}
              for claim in result.document["claims"]}  # fmt: skip
    return {"step": step, "rollouts": result.document["rollouts"], "claims": claims}


def _in_part(claim: dict[str, Any]) -> dict[str, Any]:
    tested = any(finding["status"] != "cannot tell" for finding in claim["findings"])
    return {"in_part": True} if claim["status"] == "cannot tell" and tested else {}


def _broken(claim: dict[str, Any], step: int) -> dict[str, Any]:
    """The first finding of a claim that is broken, as seen at a step."""
    return {"finding": {**claim["findings"][0], "seen": step}} if claim["status"] == "broken" else {}


def _line(step: int, claim: dict[str, Any]) -> str:
    finding = claim["findings"][0]
    return f"step {step}: broken: {claim['title'].lower()}: {finding['because'].rstrip('.')}. {finding['remedy']}"
