"""Texts of a run in progress: an exploit is raised once with its name, honest runs are silent, the budget is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import written_texts

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Evaluations, Meta, Run, no_groups
from grposcope.watch import text_looks
from grposcope.watch.alarms import Alarms
from grposcope.watch.text_looks import TextLooks


def by_step(rows: Sequence[Rollout]) -> dict[int, list[Rollout]]:
    steps: dict[int, list[Rollout]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    return steps


def looked(rows: Sequence[Rollout], every: int = 10) -> dict[str, int]:
    """The exploits that looks every so many steps find, and the step of the first look that does."""
    looks, first = TextLooks(1.0), dict[str, int]()
    for step, own in by_step(rows).items():
        looks.take(step, own)
        for finding in looks.look(now=True) if step % every == 0 else ():
            first.setdefault(finding.fault, step)
    return first


def growing(steps: int) -> Run:
    """The log of a run after so many steps, which says nothing."""
    table = {"step": np.arange(1, steps + 1.0), "reward": np.full(steps, 0.5)}
    held = Evaluations.of_rows(())
    return Run(Meta(Path("made up"), "made up", "made up", "running"), {}, table, no_groups(), held)


@pytest.mark.slow
def test_an_exploit_is_raised_once_and_by_its_name() -> None:
    rows = by_step(written_texts.rollouts(written_texts.LOOPHOLES["hedge"], 3, onset=15, steps=30, prompts=4))
    looks, alarms = TextLooks(1.0), Alarms()
    raised = []
    for step, own in rows.items():
        looks.take(step, own)
        if step % 10 == 0:
            raised += alarms.look(growing(step), looks.look(now=True))
    assert [(alarm.fault, alarm.seen) for alarm in raised if alarm.fault in text_faults()] == [("hedges", 20)]
    own = next(alarm for alarm in raised if alarm.fault == "hedges")
    assert own.since is not None
    assert own.since.low <= 15 <= own.since.high


def text_faults() -> set[str]:
    from grposcope.signs.texts import exploits

    return {*exploits.FAULTS}


@pytest.mark.parametrize("seed", range(2))
def test_honest_texts_raise_nothing(seed: int) -> None:
    assert looked(written_texts.rollouts(None, seed, steps=20, prompts=4, learns=0.5)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in written_texts.LOOPHOLES if name != "half for a word"])
def test_every_exploit_is_seen_while_it_spreads(name: str) -> None:
    """It is paid from the start, so that it may be seen before it spreads. What is paid by half is not seen in time."""
    loophole = written_texts.LOOPHOLES[name]
    found = looked(written_texts.rollouts(loophole, 5, onset=30, steps=60, prompts=4), 5)
    assert loophole.fault in found
    assert found[loophole.fault] <= 50


@pytest.mark.slow
def test_many_looks_at_honest_texts_raise_nothing() -> None:
    for seed in range(100, 110):
        assert looked(written_texts.rollouts(None, seed, steps=40, prompts=4, truth=seed % 2 == 0), 4) == {}


def test_levels_of_all_looks_add_up_to_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[float] = []

    def noted(rows: Sequence[Rollout], level: float, draws: int, words: int) -> tuple[()]:
        levels.append(level)
        return ()

    monkeypatch.setattr(text_looks.judge_texts, "of_rows", noted)
    looks = TextLooks(1.0)
    for step, own in by_step(written_texts.rollouts(None, 0, steps=60, prompts=4)).items():
        looks.take(step, own)
        looks.look(now=True)
    assert len(levels) == looks.looks > 40
    assert levels[:2] == [text_looks.LEVEL / 2, text_looks.LEVEL / 6]
    assert 0.9 * text_looks.LEVEL < sum(levels) < text_looks.LEVEL


def test_looks_keep_to_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def costly(rows: Sequence[Rollout], level: float, draws: int, words: int) -> tuple[()]:
        clock[0] += 0.5
        return ()

    monkeypatch.setattr(text_looks.judge_texts, "of_rows", costly)
    looks = TextLooks(0.005)
    own = written_texts.rollouts(None, 0, steps=1, prompts=4)
    for step in range(1, 301):
        clock[0] += 15.0
        looks.take(step, own)
        looks.look()
    assert looks.looks > 4
    assert looks.seconds <= 0.005 * clock[0]


def test_whole_groups_of_few_steps_are_kept() -> None:
    looks = TextLooks(1.0)
    long = "x" * 5000 + "end"
    for step in range(1, 301):
        rows = [Rollout(group=str(place // 3), prompt="p", completion=long, reward=0.0) for place in range(30)]
        looks.take(step, rows)
    kept = looks._kept
    assert len(kept) <= text_looks.EARLIER + 2 * text_looks.RECENT
    assert set(range(301 - text_looks.RECENT, 301)) <= set(kept)
    assert min(kept) == 1
    assert [row.group for row in kept[300]] == [str(group) for group in (0, 3, 6, 9) for _ in range(3)]
    assert {len(str(row.completion)) for row in kept[1]} == {2 * text_looks.END}
    assert all(str(row.completion).endswith("end") for row in kept[300])


def test_files_of_steps_are_loaded_once_and_damaged_ones_passed_over() -> None:
    rows = by_step(written_texts.rollouts(None, 0, steps=20, prompts=4))

    loaded: list[int] = []

    class Files(dict[int, list[Rollout]]):
        def __getitem__(self, step: int) -> list[Rollout]:
            loaded.append(step)
            if step == 5:
                raise UserError("the file is damaged")
            return super().__getitem__(step)

    files = Files(rows)
    looks = TextLooks(1.0)
    looks.look(files, now=True)
    assert loaded == list(range(1, 21))
    looks.look(files, now=True)
    assert len(loaded) == 20
    assert looks.looks == 1
    assert 5 not in looks._kept


def test_a_run_that_goes_back_is_forgotten_from_there_on() -> None:
    rows = written_texts.rollouts(None, 0, steps=1, prompts=4)
    looks = TextLooks(1.0)
    for step in (*range(1, 21), 11):
        looks.take(step, [replace(row, step=step) for row in rows])
    assert sorted(looks._kept) == list(range(1, 12))


def test_files_of_earlier_steps_do_not_take_away_later_ones() -> None:
    rows = by_step(written_texts.rollouts(None, 0, steps=20, prompts=4))
    looks = TextLooks(1.0)
    for step in range(11, 21):
        looks.take(step, rows[step])
    looks.look({step: rows[step] for step in range(1, 11)}, now=True)
    assert sorted(looks._kept) == list(range(1, 21))
    looks.look({step: rows[step] for step in range(1, 5)}, now=True)  # the run went back
    assert sorted(looks._kept) == list(range(1, 5))
