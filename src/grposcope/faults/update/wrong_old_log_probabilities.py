"""Old log-probabilities are not those of the weights that the update begins from.

What it is
    Old and current log-probabilities of different weights, number formats or modes, such as dropout.
How it shows
    With one update for each batch, old and current log-probabilities differ: the ratio is not 1. In a log: as many
    tokens are clipped while the learning rate still warms up as at its full size.
What it does to the gradient
    Ratios that should be 1 are not, so that noise clips and weights tokens.
What to do
    Compute both with the same weights, in float32 and with dropout off.
What decides
    Both log-probabilities of one batch at its first update: grposcope verify FOLDER.
Sources
    TRL #3234, disable_dropout: https://github.com/huggingface/trl/pull/3234
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.rollouts.claims import first_update, weights

_WARM, _FULL = 0.3, 0.8
"""Learning rate over the largest, up to which a row is of the warm-up, and from which it is at full size."""

_ROWS = 3
"""Rows of a warm-up, at least."""

_CLIPPED, _ALIKE = 0.04, 1.4
"""Share of tokens clipped in the warm-up that no update explains, and the factor by which it is alike later."""


def _check(quantities: Quantities) -> Finding:
    """That as many tokens are clipped at small learning rates of the first rows as at full size."""
    clipped, rate = quantities.get("clip", LEAST), quantities.get("lr", LEAST)
    if clipped is None or rate is None or len(clipped) != len(rate):
        return cannot_tell("the share of clipped tokens or the learning rate is not logged")
    full = int(np.argmax(rate.values >= _FULL * rate.values.max()))
    warm = np.flatnonzero(rate.values[:full] <= _WARM * rate.values.max())
    if len(warm) < _ROWS or full + _ROWS > len(rate):
        return cannot_tell("the learning rate has no warm-up in which updates would be small")
    first = float(np.median(clipped.values[warm]))
    later = float(np.median(clipped.values[full : full + 10 * _ROWS]))
    what = f"{clipped.name}, median of the warm-up"
    evidence = (Sign(what, first, limit=f"counts from {_CLIPPED:g}", column=clipped.name),)
    if first < _CLIPPED or not first / _ALIKE <= later <= _ALIKE * first:
        return fact(False, "what is clipped goes with the size of the steps, or is little", evidence)
    because = (
        f"{quantities.key(clipped.name)} is {number(first)} in the {len(warm)} rows of the warm-up with up to "
        f"{_WARM:g} × the largest learning rate and {number(later)} in the {min(10 * _ROWS, len(rate) - full)} rows "
        f"from {_FULL:g} × on: unless rollouts are older than a step, a batch gets several updates, or the clip range "
        "is far below 0.2 (GSPO), old and current log-probabilities are computed in different ways (dropout, "
        "precision, other weights)"
    )
    return fact(True, because, evidence, grades=("note", "note"), explains=("wrong reference", "clip saturation"),
                brief=f"{quantities.key(clipped.name)} is {number(first)} from the first rows on")  # fmt: skip


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Adapters with dropout, which is active while the loss scores what was sampled without it."""
    line = (config.script or {}).get("adapter dropout")
    if line is None or config.get("disable_dropout"):
        return
    drawn = ", which vLLM left in when it drew them" if config.get("use_vllm") else ""
    because = (
        "lora_dropout is above 0 and disable_dropout is not set: the loss scores completions with a random part of the "
        f"adapters' inputs left out{drawn}, another part in each pass, so that ratios and KL have noise of their own"
    )
    remedy = "set lora_dropout=0, or disable_dropout=True (TRL)"
    yield fact(True, because, (Sign("lora_dropout", where=f"line {line}"),), grade="note",
               brief="adapters are scored with dropout", remedy=remedy)  # fmt: skip


FAULT = Fault(
    name="wrong old log-probabilities",
    rank=8.2,
    remedy="compute old and current log-probabilities with the same weights, in float32 and with dropout off",
    beside="warning",
    log=LogTest(
        "wrong old log-probabilities",
        _check,
        needs=("clip", "lr"),
        statistic="share of tokens clipped in the rows of the warm-up and in those behind it",
        threshold=f"{_CLIPPED:g} in both, alike to {_ALIKE:g} ×",
        where_logged=True,
    ),
    rollouts=(first_update.PROOF, weights.PROOF),
    settings=SettingsCheck(
        "wrong old log-probabilities",
        _settings,
        (),
        "dropout of adapters that is active in the loss",
        ("note",),
        scripts=("trl",),
    ),
)
