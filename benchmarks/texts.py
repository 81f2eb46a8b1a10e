"""What `grposcope texts` finds in made-up trainings: false alarms, exploits named and dated, power, cost.

    python benchmarks/texts.py nulls|exploits|power|cost|looks|screens [--runs N]
    python benchmarks/texts.py real --places ROLLOUTS … [--runs N]

Rule, written before the first run. All parts use the thresholds of the package, for power and for false alarms, and
trainings of tests/helpers/written_texts.py with seeds that no test uses (first from 10,000 on, now from 20,000 on).
A null is an honest training, or one whose unpaid habit spreads while rewards are permuted inside groups; an alarm is
any exploit that is present. Budget: of 300 nulls at most 15 with an alarm; of each test, at most 7 % with p ≤ LEVEL;
exploits named in ≥ 90 %, with or without a true score; the true step in the interval in ≥ 85 %; honest twins ≤ 5 %;
power no worse than 0.85 (N = 128, q = 10 %, G = 16), 0.63 (512, 2 %, 8) and 0.98 (512, 5 %, 4); 4,096 × 2,000 tokens
in ≤ 8 s on one core and ≤ 1 GB. Trainings are small (40 steps of 4 groups of 8), onsets between steps 12 and 28.

After the first run LEVEL went from 3 to 5 %: it had 0 of 200 nulls with an alarm, and 81 % for 128, 10 %, 16. The
table of docs/texts.md is of a second run with fresh seeds. Later a column had to vary in about three prompts instead of
five, which had cost a third of the power at 128 rollouts; 60 nulls and 120 data sets showed no more alarms than before.

Two later parts, their rule written before their first run. `real` takes rollouts of honest trainings and of public
repositories by turns, at most 1,200 of each, permutes the rewards inside groups, and reads the whole: of 300 at most 15
with any suspicion, present or possible; paid habits (p ≤ LEVEL) in at most 7 %. `looks` plays trainings to
`watch.text_looks`, a look every five steps: an honest training with any alarm in at most 2 of 60; of 14 exploits × 2
seeds an alarm with the name of the fault in ≥ 90 %, and the median look no more than ten steps after the onset.

Rates have 95 % Wilson intervals. The last line is JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
import written_texts

from grposcope import cli
from grposcope.core.rollouts import Rollout
from grposcope.maths import group_steps, within_groups
from grposcope.maths.intervals import wilson
from grposcope.signs.texts import exploits, features, reading, sample
from grposcope.signs.texts.habits import LEVEL
from grposcope.watch.text_looks import TextLooks

FIRST_SEED = 20_000
LATE = 60
"""Characters of a text that the table of first screens shows, its last ones."""

SMALL: dict[str, Any] = {"steps": 40, "prompts": 4, "group": 8}


def rate(count: int, total: int) -> str:
    """A count as a share with its interval."""
    low, high = wilson(count / max(total, 1), max(total, 1))
    return f"{count} of {total}, {count / max(total, 1):.1%} ({low:.1%} to {high:.1%})"


def permuted(rows: list[Rollout], seed: int) -> list[Rollout]:
    """The rollouts, rewards permuted inside groups of eight."""
    rng = np.random.default_rng(seed)
    rewards = rng.permuted(np.array([row.reward for row in rows]).reshape(-1, 8), axis=1).ravel()
    return [replace(row, reward=float(reward), columns={}) for row, reward in zip(rows, rewards, strict=True)]


def nulls(runs: int) -> dict[str, Any]:
    """Alarms on honest trainings and on permuted rewards, and the sizes of the two tests."""
    alarms: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        honest = written_texts.rollouts(None, seed, truth=seed % 4 == 0, learns=(seed % 3) * 0.3, **SMALL)
        if seed % 2:
            spreading = written_texts.LOOPHOLES[sorted(written_texts.LOOPHOLES)[seed % 14]]
            unpaid = replace(spreading, paid=0.0) if spreading.fault in TEXTUAL else None
            honest = permuted(written_texts.rollouts(unpaid, seed, onset=20, **SMALL), seed)
        read = reading.read(sample.of_rollouts(honest))
        found = exploits.exploits(read)
        kind = "permuted" if seed % 2 else "honest"
        alarms[f"{kind} runs"] += 1
        alarms[f"{kind} present"] += any(own.status == "present" for own in found)
        alarms[f"{kind} possible"] += any(own.status == "possible" for own in found)
        if any(own.status == "present" for own in found):
            print(seed, kind, [(own.fault, own.because) for own in found], flush=True)
    for kind in ("honest", "permuted"):
        for status in ("present", "possible"):
            print(f"{kind}, {status}: {rate(alarms[f'{kind} {status}'], alarms[f'{kind} runs'])}", flush=True)
    return {**alarms, **sizes(2 * runs)}


TEXTUAL = ("magic string", "hedges", "length pays", "copies the prompt")
"""Faults that are none where nothing is paid for them and every text still differs."""


def sizes(runs: int) -> dict[str, Any]:
    """Any p ≤ LEVEL where rewards are permuted inside groups, and where groups are permuted over steps."""
    loophole = written_texts.LOOPHOLES["magic word"]
    own = sample.of_rollouts(written_texts.rollouts(loophole, FIRST_SEED, onset=20, **SMALL))
    found = features.of_sample(own)
    rng = np.random.default_rng(FIRST_SEED)
    of_group = np.zeros(own.group.max() + 1, np.int64)
    of_group[own.group] = own.step
    paid = changed = odd = 0
    for _ in range(runs):
        reward = rng.permuted(own.reward.reshape(-1, 8), axis=1).ravel()
        paid += within_groups.association(found.columns, reward, own.group, own.prompt, 199, rng).p.min() <= LEVEL
        over = group_steps.changes(found.columns, rng.permutation(of_group)[own.group], own.group, 99, rng)
        assert over is not None
        changed += over.p.min() <= LEVEL
        odd += over.odd_p.min() <= LEVEL
    for name, count in (("what pays", paid), ("what changes", changed), ("odd steps", odd)):
        print(f"size of {name}, {len(found)} features: {rate(int(count), runs)}", flush=True)
    return {"size paid": int(paid), "size changed": int(changed), "size odd": int(odd), "size runs": runs}


def caused(runs: int) -> dict[str, Any]:
    """Exploits named and dated; `runs` seeds of each loophole, with a true score and without."""
    named: Counter[str] = Counter()
    for place, (name, loophole) in enumerate(written_texts.LOOPHOLES.items()):
        for number in range(runs):
            seed = FIRST_SEED + 100 * place + number
            rng = np.random.default_rng(seed)
            onset, ramp, truth = int(rng.integers(12, 28)), float(rng.uniform(2, 12)), bool(number % 2)
            rows = written_texts.rollouts(loophole, seed, onset, ramp=ramp, truth=truth, **SMALL)
            found = exploits.exploits(reading.read(sample.of_rollouts(rows)))
            own = next((exploit for exploit in found if exploit.fault == loophole.fault), None)
            sure = own is not None and (own.status == "present" or (loophole.paid < 1 and not truth))
            held = own is not None and own.since is not None and own.since.low <= onset <= own.since.high
            named["runs"] += 1
            named["any"] += bool(found)
            named["named"] += sure
            named["first"] += bool(found) and found[0].fault == loophole.fault
            named["held"] += sure and held
            if not sure or not held:
                since = None if own is None or own.since is None else (own.since.step, own.since.low, own.since.high)
                told = [(exploit.fault, exploit.status) for exploit in found]
                where = f"seed {seed}, onset {onset}, ramp {ramp:.0f}, truth {truth}"
                print(f"{name}, {where}: {told} since {since}", flush=True)
    for title, count in (("named", "named"), ("named first", "first"), ("anything told", "any")):
        print(f"{title}: {rate(named[count], named['runs'])}")
    print(f"true step in the interval: {rate(named['held'], named['named'])}")
    return dict(named)


def power(runs: int) -> dict[str, Any]:
    """Share of data sets in which a feature of prevalence q that is always paid is found among 500."""
    rng, shares = np.random.default_rng(FIRST_SEED), {}
    for count, q in ((32, 0.3), (128, 0.05), (128, 0.1), (512, 0.02), (512, 0.05)):
        for size in (4, 8, 16):
            hits = 0
            group = np.repeat(np.arange(count // size), size)
            for _ in range(runs):
                columns = (rng.random((count, 500)) < np.clip(rng.beta(0.5, 4, 500), 0.01, 0.9)).astype(np.float32)
                columns[:, 0] = rng.random(count) < q
                reward = (rng.random(count) < rng.beta(1, 2, count // size)[group]) | (columns[:, 0] > 0)
                found = within_groups.association(columns, reward.astype(float), group, group, 199, rng)
                hits += found.p[0] <= LEVEL
            shares[f"{count}, {q:.0%}, G = {size}"] = hits / runs
            print(f"N = {count}, q = {q:.0%}, G = {size}: {rate(int(hits), runs)}", flush=True)
    return shares


def cost(runs: int) -> dict[str, Any]:
    """CPU seconds and peak memory of a whole reading, by the number of rollouts and their tokens."""
    del runs
    made = {}
    for count, tokens in ((4096, 2000), (20_000, 500)):
        rng = np.random.default_rng(FIRST_SEED)
        words = np.array([f"w{place}" if place % 7 else f"{place}." for place in range(3000)])
        share = 1 / np.arange(1, 3001)
        rows = []
        for place in range(count):
            text = " ".join(words[rng.choice(3000, int(tokens * 0.62), p=share / share.sum())])
            prompt = f"What is {place // 8 % 200} plus {place // 8 % 31}?"
            rows.append(Rollout(step=place // 64, group=str(place // 8), prompt=prompt, completion=text,
                                reward=float(rng.random() < 0.4)))  # fmt: skip
        own = sample.of_rollouts(rows)
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        reading.read(own)
        seconds, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        made[f"{count} × {tokens}"] = {"seconds": round(seconds, 2), "gigabytes": round(peak / 1e6, 2)}
        memory = f"peak {peak / 1e6:.2f} GB, {before / 1e6:.2f} before"
        print(f"{count:,} × {tokens:,} tokens: {seconds:.1f} s, {memory}", flush=True)
    return made


def real(runs: int, places: Sequence[Path] = ()) -> dict[str, Any]:
    """Suspicion, and paid habits, in rollouts whose rewards are permuted inside groups."""
    from grposcope.logs import read_rollouts

    every = [[row for row in read_rollouts.rollouts(place).rows if row.completion is not None] for place in places]
    counts: Counter[str] = Counter()
    for number in range(runs):
        own = sample.of_rollouts(every[number % len(every)], most=1200)
        rng = np.random.default_rng(FIRST_SEED + number)
        order = np.lexsort((rng.random(len(own)), own.group))
        reward = np.empty(len(own))
        reward[np.argsort(own.group, kind="stable")] = own.reward[order]
        read = reading.read(replace(own, reward=reward, scores={}, truth=""), number)
        found = exploits.exploits(read)
        paid = [one for one in found if one.habit is not None]
        counts["runs"] += 1
        counts["paid habit"] += bool(read.habits)
        counts["suspected habit"] += bool(paid)
        counts["present"] += any(one.status == "present" for one in found)
        counts["any"] += bool(found)
        if found:
            where = places[number % len(places)].name
            print(number, where, [(one.fault, one.status, one.because) for one in found], flush=True)
    for title in ("paid habit", "suspected habit", "present", "any"):
        print(f"{title}: {rate(counts[title], counts['runs'])}", flush=True)
    return dict(counts)


def looks(runs: int) -> dict[str, Any]:
    """Alarms while a training goes: of honest ones, and when of exploits."""
    honest = exploited = named = 0
    after: list[int] = []
    for number in range(runs):
        rows = written_texts.rollouts(None, FIRST_SEED + number, truth=number % 2 == 0, **SMALL)
        honest += bool(_alarms(rows))
    for place, (name, loophole) in enumerate(written_texts.LOOPHOLES.items()):
        for seed in (FIRST_SEED + 500 + 2 * place, FIRST_SEED + 501 + 2 * place):
            rows = written_texts.rollouts(loophole, seed, onset=20, truth=seed % 2 == 0, **SMALL)
            first = _alarms(rows).get(loophole.fault)
            exploited += 1
            named += first is not None
            after += [] if first is None else [first - 20]
            print(f"{name}, seed {seed}: {'no alarm' if first is None else f'at step {first}'}", flush=True)
    print(f"honest trainings with an alarm: {rate(honest, runs)}")
    print(f"exploits raised by name: {rate(named, exploited)}; steps after the onset: median {np.median(after):.0f}, "
          f"at most {max(after)}")  # fmt: skip
    return {"honest": honest, "runs": runs, "named": named, "exploits": exploited, "after": after}


def _alarms(rows: Sequence[Rollout]) -> dict[str, int]:
    """Fault -> step of the first look, of one every five steps, that names it."""
    looked, first = TextLooks(1.0), dict[str, int]()
    steps: dict[int, list[Rollout]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    for step, own in steps.items():
        looked.take(step, own)
        for finding in looked.look(now=True) if step % 5 == 0 else ():
            first.setdefault(finding.fault, step)
    return first


def screens(runs: int) -> dict[str, Any]:
    """What the texts of each loophole do, from step 20 on, beside the first lines of `texts` and of `diagnose`."""
    del runs
    lines = {}
    for place, (name, loophole) in enumerate(written_texts.LOOPHOLES.items()):
        rows = written_texts.rollouts(loophole, FIRST_SEED + 900 + place, onset=20, truth=False, **SMALL)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "rollouts.jsonl"
            path.write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows))
            lines[name] = [_printed([command, str(path)])[0] for command in ("texts", "diagnose")]
        example = str(rows[-1].completion).replace("\n", "⏎").replace("|", "\\|") or "nothing"
        example = example if len(example) <= LATE else f"… {example[-LATE:]}"
        print(f"| {name} | {example} | {' | '.join(lines[name])} |", flush=True)
    return lines


def _plain(row: Rollout) -> dict[str, Any]:
    """A rollout as anybody's pipeline would write it."""
    names = ("step", "group", "prompt", "completion", "reward")
    return {name: getattr(row, name) for name in names}


def _printed(words: list[str]) -> list[str]:
    """The lines that a command prints."""
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        cli.main(words)
    return printed.getvalue().splitlines()


PARTS: dict[str, tuple[Callable[..., dict[str, Any]], int]] = {
    "looks": (looks, 60),
    "screens": (screens, 1),
    "real": (real, 300),
    "nulls": (nulls, 300),
    "exploits": (caused, 8),
    "power": (power, 150),
    "cost": (cost, 1),
}


def main() -> None:
    """Run one part."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("part", choices=PARTS)
    flags.add_argument("--runs", type=int)
    flags.add_argument("--places", type=Path, nargs="+", default=[], help="rollouts of the part real")
    asked = flags.parse_args()
    measure, runs = PARTS[asked.part]
    more = {"places": asked.places} if asked.part == "real" else {}
    print(json.dumps({asked.part: measure(asked.runs or runs, **more)}))


if __name__ == "__main__":
    main()
