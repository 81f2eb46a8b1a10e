"""Old log-probabilities are not those of the weights that the update begins from.

What it is
    Old and current log-probabilities of different weights, number formats or modes, such as dropout.
How it shows
    With one update for each batch, old and current log-probabilities differ: the ratio is not 1.
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

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import first_update, weights


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
