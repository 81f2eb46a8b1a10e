"""How much of the evidence a test saw, in words: a claim that was tested on a part of it says so."""

from __future__ import annotations


def share(tested: int, whole: int, lacking: str, noun: str = "rollout") -> str:
    """ "64 rollouts" where all were tested, else "40 of 64 rollouts (24 have no reward)" with lacking = "no reward"."""
    if tested >= whole:
        return f"{tested:,} {noun}{'' if tested == 1 else 's'}"
    untested = whole - tested
    return f"{tested:,} of {whole:,} {noun}s ({untested:,} {'has' if untested == 1 else 'have'} {lacking})"
