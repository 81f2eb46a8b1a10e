"""Rules that every sentence a user can see keeps: no phrase of ours to decode, no raw markup, one style of number."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def listed() -> list[Any]:
    """Every sentence of the package that a user may read, with its file and line."""
    sentences: list[Any] = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "words.py"))["sentences"]()
    return sentences


BANNED = (
    "mend", "broken off", "and 1 more", "as of micro-batches", "slow wandering", "hang on one rollout",
    "cannot be told",
    "goes on with", "looked at for adapters", "nowhere to write to", "is no number", "is no share",
    "is no run", "is no multiple", "explains of the rest", "where 1 is the most", "out of the ordinary",
    "honest band", "flattered", "in disguise",
    "go on with", "began anew", "begins? anew", "train anew", "taken again", "spoken at", "has not how many", "a stub",
    "turned round", "Weigh", "the spread of", "mean spread", "was asked for", "more tests", "suffice for none",
    "parting at", "at no single step", "not true that", "would go on", "spread does not", "dropped blindly",
    "nats in the mean",
    "is no (?:limit|event|list|finite|plain|object|trace)", "are no ids", "; do:",
    "suffices for", "pulls? against", "of it (?:mismatch|staleness)", "two at least", "draw anew", "thrown away",
    "as written", "there and not empty", "one word more", "breaks off", "error holds", "clip holds", "held by the clip",
    "off the rewards", "has one sign", "tell little", "so are the intervals", "it may be of",
    "says to which group", "encoded again", "cannot be made again", "put together from", "take passes",
    "stand together", "fill the limit", "in units of the least", "leaves 0 out", "had come at", "than it had",
    "ladder of a flat run", "no rung", "[Nn]ot enclosed", r"\(e-value",
    "where the rewards give", "as the others do", "have no part of", "are those of groups",
)  # fmt: skip
"""Turns of phrase that readers stumbled over."""


def test_the_list_is_of_the_whole_package(listed: list[Any]) -> None:
    assert len(listed) > 3000
    assert len({one.file.split("/")[0] for one in listed}) >= 9
    assert any("stop and read completions after the onset" in one.text for one in listed)


def test_no_phrase_needs_decoding(listed: list[Any]) -> None:
    phrase = re.compile("|".join(rf"\b{phrase}\b" for phrase in BANNED))
    found = [f"{one.file}:{one.line}: {hit[0]!r}" for one in listed if (hit := phrase.search(one.text))]
    assert not found


def test_no_raw_markup_and_no_number_of_python_in_a_sentence(listed: list[Any]) -> None:
    markup = [f"{one.file}:{one.line}: {one.text[:90]}" for one in listed if "`" in one.text]
    assert not markup
    numbers = [f"{one.file}:{one.line}: {one.text[:90]}" for one in listed if re.search(r"\de[+-]0\d", one.text)]
    assert not numbers


def test_a_counted_noun_has_no_fixed_singular_number(listed: list[Any]) -> None:
    """No "1 times" that a sentence brings along; numbers that are put in are made to agree by `core.text.plain`."""
    plural = re.compile(r"(?<![\w.,=–−-])1 (?:times|steps|rows|lines|rollouts|runs|groups|prompts|points)\b")
    found = [f"{one.file}:{one.line}: {one.text[:90]}" for one in listed if plural.search(one.text)]
    assert not found
