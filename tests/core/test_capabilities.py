"""What parts of a run need and provide: refusals are composed, and nothing reads what it does not declare."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch
from cases import CASES
from places import ROOT

from grposcope.core.capabilities import (
    ENTROPY,
    MODEL_PASS,
    PAIRS,
    STEP_ENDS,
    STEP_REWARDS,
    TEACHER,
    TURNS,
    Capability,
    Lack,
    Part,
    _refusal,
    check,
)
from grposcope.core.errors import UserError
from grposcope.engines.trl import guard
from grposcope.lab import allocation, credit
from grposcope.lab.credit import CreditSource
from grposcope.lab.objectives import recipes
from grposcope.lab.sampling.annotators import ANNOTATORS
from grposcope.lab.train.config import ENGINE, TrainConfig, parts

SOURCE = ROOT / "src" / "grposcope"
NEEDLE = Capability("a needle")
WITH_SETTINGS = {"teacher": "teacher:model=tiny", "tree": "tree:widths=2x2"}
LIVE = CASES[0].rollouts


def test_a_need_that_nobody_meets_is_the_engines_lack() -> None:
    sewing = Part("credit sewing", "use another credit", needs=frozenset({NEEDLE}))
    hay = Part("engine hay", "use engine shop")
    assert _refusal(hay, sewing) == (
        "credit sewing needs a needle, and engine hay does not provide it; use another credit, or use engine shop"
    )
    assert _refusal(Part("engine shop", provides=frozenset({NEEDLE})), sewing) == ""
    assert _refusal(hay, sewing, Part("tailor", provides=frozenset({NEEDLE}))) == "", "any part may provide"


def test_the_part_that_takes_something_away_is_named_whoever_provides_it() -> None:
    shop = Part("engine shop", provides=frozenset({NEEDLE}))
    thief = Part("allocate thief", lacks={NEEDLE: Lack("takes it", "leave out allocate")})
    sewing = Part("credit sewing", needs=frozenset({NEEDLE}))
    with pytest.raises(
        UserError, match="credit sewing needs a needle, and allocate thief takes it; leave out allocate"
    ):
        check(shop, thief, sewing)


def test_who_provides_the_means_provides_what_comes_by_them_and_who_lacks_them_lacks_it() -> None:
    asks = Part("credit teacher", needs=frozenset({TEACHER}))
    assert _refusal(Part("engine", provides=frozenset({MODEL_PASS})), asks) == ""
    without = Part("engine", provides=frozenset({TEACHER}), lacks={MODEL_PASS: Lack("makes none", "wait")})
    assert (
        _refusal(without, asks)
        == "credit teacher needs a further pass of a model over every batch, and engine makes none; wait"
    )


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_every_pair_is_possible_or_refused_in_one_line_that_names_both_and_the_remedy(processes: int) -> None:
    """All sources × allocators × recipes on an engine (0: our own); nobody but the parts says what goes together."""
    engine, possible = guard.engine(processes) if processes else ENGINE, 0
    for source, allocate, recipe in product(credit.SOURCES, allocation.ALLOCATORS, recipes.ALL):
        asked = WITH_SETTINGS.get(source, source)
        said = _refusal(engine, *parts(TrainConfig(credit=asked, allocate=allocate, recipe=recipe)))
        possible += not said
        names = (f"credit {asked}", f"allocate {allocate}", f"recipe {recipe}", engine.name)
        assert not said or (sum(name in said for name in names) == 2 and re.search(r"; (use|leave|start)", said)), said
    assert possible > 50


def test_a_toy_credit_with_a_need_of_its_own_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine and no setting knows the need, and the refusal is there."""
    toy = CreditSource(credit._outcome, "a toy", needs=frozenset({NEEDLE, PAIRS}))
    monkeypatch.setitem(credit.SOURCES, "toy", toy)
    for engine in (ENGINE, guard.engine()):
        said = _refusal(engine, *parts(TrainConfig(credit="toy")))
        assert said.startswith(f"credit toy needs a needle, and {engine.name} does not provide it; use another credit")
    monkeypatch.setitem(credit.SOURCES, "toy", CreditSource(credit._outcome, "a toy", needs=frozenset({PAIRS})))
    assert _refusal(ENGINE, *parts(TrainConfig(credit="toy"))) == ""
    assert "credit toy needs groups of 2" in _refusal(ENGINE, *parts(TrainConfig(credit="toy", group=1)))
    assert "credit toy needs groups without gaps" in _refusal(
        ENGINE, *parts(TrainConfig(credit="toy", reward_errors="drop"))
    )


@pytest.mark.parametrize("name", credit.SOURCES)
def test_a_source_reads_what_it_declares_and_no_more(name: str) -> None:
    """Entropies and labels of steps, which an engine may not have, change the credit of those alone that need them."""
    source = credit.chosen(f"tree:widths={LIVE.groups[1]}" if name == "tree" else WITH_SETTINGS.get(name, name))
    random = torch.Generator().manual_seed(0)
    ends = LIVE.mask & (torch.rand(LIVE.mask.shape, generator=random) < 0.5)
    values = {one: torch.rand(LIVE.mask.shape, generator=random) for one in ("values", "other_logp", "prefix_values")}
    full = LIVE.annotated(
        turns=torch.where(LIVE.mask, 0, -1), states=torch.ones_like(LIVE.tokens), turn_values=values["values"].double(),
        step_ends=ends, step_rewards=ends.double(), levels=torch.zeros_like(LIVE.tokens),
        collision=torch.rand(LIVE.mask.shape, generator=random), **values,
    )  # fmt: skip
    before = source.assign(recipes.GRPO, full)
    if not source.source.requires(ENTROPY):
        unknown = full.each(lambda array, a: torch.full_like(a, torch.nan) if array == "entropy" else a)
        assert torch.equal(source.assign(recipes.GRPO, unknown), before), "it reads entropies without saying so"
    if not source.source.requires(STEP_ENDS) and not source.source.requires(TURNS):
        bare = {one: a for one, a in full.token_annotations.items() if one not in ("step_ends", "step_rewards")}
        arrays = {one: a for one, a in full.arrays().items() if one not in ("step_ends", "step_rewards")}
        given = full.of_arrays(arrays)
        assert given.token_annotations.keys() == bare.keys()
        assert torch.equal(source.assign(recipes.GRPO, given), before), "it reads steps without saying so"
    if source.source.from_steps is not None:
        assert STEP_REWARDS in source.source.needs
        alone = source.source.from_steps(ends.double(), ends, LIVE.mask, LIVE.groups[1])
        torch.testing.assert_close(alone, before)


def test_every_need_of_a_model_has_an_annotator() -> None:
    asked = {one for source in credit.SOURCES.values() for one in source.needs if one.by is MODEL_PASS}
    assert asked == ANNOTATORS.keys()


def test_no_part_asks_for_another_by_name() -> None:
    """Sources, allocators, recipes and advantages are told apart by what they declare."""
    names = "|".join({*credit.SOURCES, *allocation.ALLOCATORS, *recipes.ALL} - {"uniform"})  # no allocation at all
    rule = re.compile(rf'(?:credit|allocate|recipe|advantage|chosen|source)\w*(?:\.name)? (?:==|!=) "(?:{names})"')
    for room in ("training", "engines", "credit", "allocation", "commands"):
        for file in (SOURCE / room).rglob("*.py"):
            assert not rule.findall(file.read_text()), file
