"""Which version of a trainer its keys were held against: the source of the package, read as text."""

from __future__ import annotations

from typing import NamedTuple


class _HeldVersion(NamedTuple):
    """trainer: as in TRAINERS. package, version: on the Python Package Index. when: the day. note: what to know."""

    trainer: str
    package: str
    version: str
    when: str
    note: str = ""


HELD = (
    _HeldVersion("trl", "trl", "1.16.0", "2026-11-24"),
    _HeldVersion("verl", "verl", "0.9.1", "2026-11-24"),
    _HeldVersion("openrlhf", "openrlhf", "0.11.2", "2026-11-24"),
    _HeldVersion("tinker", "tinker-cookbook", "0.6.1", "2026-11-24"),
    _HeldVersion("skyrl", "skyrl", "0.4.0", "2026-11-26", "needs Python 3.12"),
    _HeldVersion("skyrl", "skyrl-train", "0.3.1", "2026-11-24", "the package before"),
    _HeldVersion("areal", "areal", "1.0.4", "2026-11-24", "needs Python 3.12"),
    _HeldVersion("ms-swift", "ms-swift", "4.6.0", "2026-11-24"),
    _HeldVersion("twinkle", "twinkle-kit", "0.5.1", "2026-11-24"),
    _HeldVersion(
        "art", "openpipe-art", "0.5.23", "2026-11-26", "needs Python 3.12; keys of older versions are read as well"
    ),
    _HeldVersion(
        "verifiers", "verifiers", "0.1.8.post2", "2026-11-24", "the last with a trainer: 0.4.0 has environments alone"
    ),
    _HeldVersion("agent-lightning", "agentlightning", "1.0.2", "2026-11-26", "trains by verl, whose keys it logs too"),
    _HeldVersion("trinity", "trinity-rft", "0.6.0", "2026-11-26", "trains by verl, whose keys it logs too"),
    _HeldVersion("cosmos-rl", "cosmos-rl", "0.4.7", "2026-11-26"),
)
"""Those trainers that are on the index; slime, NeMo-RL, prime-rl and ROLL were read in their repositories."""
