"""The sampler draws from a part of the trainer's distribution only.

What it is
    top-k, top-p or min-p at sampling, or log-probabilities that are returned after truncation.
How it shows
    The log ratio has the same sign from the first step on: mean ρ is the kept mass m, below 1, and mean log ρ is log m.
What it does to the gradient
    Every ratio is too small by the kept mass, and tokens outside of it are never explored.
What to do
    Sample without truncation at the trainer's temperature, or return log-probabilities from before it.
What decides
    Mean ρ beside k1 and k3: 1 + k3 − k1 is 1 without truncation.
Sources
    TRL #6789: https://github.com/huggingface/trl/issues/6789
    prime-rl #3186: https://github.com/PrimeIntellect-ai/prime-rl/pull/3186
    miles #338: https://github.com/radixark/miles/pull/338
    vLLM, logprobs_mode
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import sampling, weights
from grposcope.signs.sampler_mismatch import TEST
from grposcope.signs.settings.names import EVERY, key_of

_BEFORE = "before NeMo-RL #2053 (March 2026), since which the trainer cuts its own distribution likewise, "
"""Of which versions of NeMo-RL it is true, whose settings do not have the version."""


PRIME_RL = (
    "train.sampling.extra_body.", "train.sampling.", "sampling.extra_body.", "sampling.",
)  # fmt: skip
"""Where prime-rl's orchestrator has what is sent to the sampler of training, by versions."""


def _keys(config: Settings) -> tuple[str, str]:
    """The keys of nucleus and of top-k sampling; of several places that of one that is given."""
    if config.dialect.name != "prime-rl":
        return key_of(config, "top_p"), key_of(config, "top_k")
    p, k = ([of_prime_rl(config, prefix + name) for prefix in PRIME_RL] for name in ("top_p", "top_k"))
    return next(filter(config.says, p), p[0]), next(filter(config.says, k), k[0])


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Rollouts that are drawn from the likeliest tokens alone."""
    p, k = _keys(config)
    least = key_of(config, "min_p")
    mass, tokens, share = config.number(p), config.number(k), config.number(least)
    cut = [f"{p} = {mass:g}"] if mass is not None and 0 < mass < 1 else []
    cut += [f"{k} = {tokens:g}"] if tokens is not None and tokens >= 1 else []
    cut += [f"{least} = {share:g}"] if share is not None and share > 0 else []
    if cut:
        version = _BEFORE if config.dialect.name == "nemo-rl" else ""
        yield fact(
            True,
            f"{' and '.join(cut)}: {version}rollouts are drawn from part of the distribution, while the trainer's "
            "log-probabilities are those of the whole; the ratio is wrong by what is cut, and nothing outside is "
            "explored",
            config.signs(p, k, least),
            grade="warning" if config.dialect.name == "prime-rl" else "note",  # whose loss always has the ratio
            brief="the sampler is truncated",
            remedy=_whole(config, p, k, least),
        )


def _whole(config: Settings, p: str, k: str, least: str) -> str:
    """What gives the whole distribution."""
    if config.dialect.name == "prime-rl" and not config.says(p):
        return f"set {k} to -1"
    off = [f"set {p} to 1"] + [f"{key} off" for key in (k, least) if config.says(key) or (key and key == k)]
    return " and ".join(off)


FAULT = Fault(
    name="truncated sampler",
    rank=219,
    remedy=(
        "sample without top-k and top-p at the trainer's temperature, or have the sampler return "
        "log-probabilities computed before truncation"
    ),
    beside="warning",
    log=TEST,
    rollouts=(sampling.PROOF, weights.PROOF),
    settings=SettingsCheck(
        "truncated sampler",
        _settings,
        EVERY[:-1],
        "rollouts drawn with top-k, top-p or min-p",
        ("warning", "note"),
        "miles #338",
    ),
)
