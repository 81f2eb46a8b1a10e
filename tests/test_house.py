"""What a newcomer has to hold in the head does not grow: counts of the source stay within what was reached."""

from __future__ import annotations

import ast

import house
import pytest


@pytest.mark.parametrize("measure", house.LIMITS)
def test_no_count_rises_above_what_was_reached(measure: str) -> None:
    """`python tests/helpers/house.py` lists who is counted; a limit is lowered where a count falls, never raised."""
    counts = house.counts()
    assert counts[measure] <= house.LIMITS[measure], f"{measure}: {counts[measure]}"


def test_every_limit_has_a_goal() -> None:
    assert house.LIMITS.keys() == house.GOALS.keys() <= house.counts().keys()


@pytest.mark.parametrize("room", sorted(house.SWEPT))
def test_names_in_a_swept_room_say_what_is_in_them(room: str) -> None:
    vague, every = house.fillers()[room]
    assert vague / every < 0.02, f"{vague} of {every} names are among {sorted(house.FILLERS)}"


TOY = ast.parse("""
class Box(NamedTuple):
    place: int

class _Empty:
    size = 1

def fill(one, *, size, **rest):
    known = [found for found in one if found and size or rest]
    for part, weight in known:
        if weight:
            yield part if part else None
""")


def test_what_is_counted() -> None:
    """In a toy: one class with fields, two public names, fillers wherever a name is bound, every branch."""
    (fill,) = house.functions(TOY)
    assert house.public_names(TOY) == ["Box", "fill"]
    assert house.classes_with_fields(TOY) == ["Box"]
    assert house.parameters(fill) == 2
    assert house.branches(fill) == 6
    assert sorted(house.FILLERS.intersection(house.bound_names(TOY))) == ["found", "known", "one", "part", "place"]
