"""How many rows pass from the onset of a fault to its alarm, whether the alarm names the cause, and needless stops.

    python benchmarks/faults/live.py train [--seeds 0 1]     train what is not there yet
    python benchmarks/faults/live.py sound [--count 10]      the sound trainings, that many of each setting
    python benchmarks/faults/live.py score [--seeds 2 3]     replay what is there at three speeds, and print the tables
    python benchmarks/faults/live.py made                    made-up sound runs, replayed likewise

Rules, written before the first run:

- Trainings: `tiny` in our loop, 8 prompts × 8 rollouts, an evaluation every 10 steps, 100 steps, rate 2e-4. A fault of
  LIVE begins at step 31 on seeds 0 and 1, at step 44 on seeds 2 and 3. Seeds 0 and 1 are for development; 2 and 3 are
  scored once, at the end. Budget: 20 × 4 trainings, and 10 sound settings of `trained_faults` × 10, 45 minutes of one
  core.
- Replay: the rows of a training are written to a record a row at a time, and `watch.live.LiveAlarms`, which a training
  calls, is told of each. A clock that is made up goes on by 0.125, 1 or 10 seconds a row, and by what a look takes.
- An alarm: a line that a receiver of alerts gets, a warning or a failure, seen at the onset or later. Delay: rows after
  the onset until the first alarm that names a right cause. Rows until the first alarm of any name are told beside it.
- Found: a right cause is alarmed. Right names are fixed below; a name is right where its remedy would mend the fault.
- Gross: the fault is there at full size at its first step; the others build up (GRADUAL).
- Once: no fault is told twice with the same grade in a run.
- Needless stop: any alarm that is failing in a sound run (`stop_on=("failing",)` would end it). Warnings are told
  beside it. Sound runs are the sound trainings at each speed, counted once (worst speed), and the healthy kinds of
  `plain_runs`, seeds 60,000 on, 10 each. Those are levels and means, without the rewards of groups.
- Bars: 18 of 20 faults alarmed with the right cause on each held-out seed, the median delay of gross ones at most 15
  rows, at most 15 of 300 sound runs stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import catalogue
import trained
import trained_faults as put_in
import worlds
from trained_faults import CUT, HACKED, NEVER_ARRIVED, NO_GRADIENT, SOUND
from worlds import Injection, World, none

FOLDER = Path("build/live-faults")
STEPS = 100
BASE: dict[str, Any] = {
    "steps": STEPS, "prompts": 8, "group": 8, "lr": 2e-4, "kl": 1e-3, "eval_every": 10, "eval_problems": 40,
    "checkpoint_every": 0, "verify_every": 0, "rollouts_every": 0,
}  # fmt: skip
SPEEDS = (0.125, 1.0, 10.0)
"""Seconds of a step."""


def onset(seed: int) -> int:
    """The first step with the fault."""
    return 31 if seed % 4 < 2 else 44


@dataclass(frozen=True)
class LiveFault:
    """A fault that begins in the middle. right: names that are right. inject: what is put in, from the onset on."""

    name: str
    right: tuple[str, ...]
    inject: Callable[[int], Injection]
    settings: Mapping[str, Any] = field(default_factory=dict)
    gradual: bool = False


def gated(injection: Injection) -> Callable[[int], Injection]:
    """The injection, whose replaced functions are the trainer's own until the onset."""

    def at(begins: int) -> Injection:
        @contextlib.contextmanager
        def inject(world: World) -> Iterator[None]:
            def both(inner: Any, make: Any) -> Any:
                outer = make(inner)
                return lambda *given, **more: (outer if world.step >= begins else inner)(*given, **more)

            def replaced(owner: Any, name: str, make: Any) -> Any:
                return worlds.replaced(owner, name, lambda inner: both(inner, make))

            with mock.patch.object(catalogue, "replaced", replaced), injection(world):
                yield

        return inject

    return at


def rate(factor: float) -> Callable[[int], Injection]:
    """The learning rate, times a factor."""
    return gated(catalogue._patch(catalogue._rate, lambda world, inner: lambda *given: factor * inner(*given)))


def _update() -> tuple[Any, str]:
    from grposcope.lab.train import loop

    return loop, "update"


def objective(change: Callable[[Any], Any]) -> Callable[[int], Injection]:
    """Another objective."""

    def make(world: World, inner: Any) -> Any:
        return lambda model, optimizer, own, *given, **more: inner(model, optimizer, change(own), *given, **more)

    return gated(catalogue._patch(_update, make))


def sampled(**changes: Any) -> Callable[[int], Injection]:
    """The sampler has other settings; it returns the log-probabilities by its own."""

    def make(world: World, inner: Any) -> Any:
        def sample(model: Any, prompts: Any, group: Any, sampling: Any, *given: Any) -> Any:
            return inner(model, prompts, group, replace(sampling, **changes), *given)

        return sample

    return gated(catalogue._patch(catalogue._sample, make))


def spoilt(begins: int) -> Injection:
    """Weights become NaN at the onset, once."""

    def make(world: World, inner: Any) -> Any:
        def optimise(self: Any, *given: Any) -> Any:
            if world.step == begins:
                next(self.setup.policy.model.parameters()).data.view(-1)[:4096] = float("nan")
            return inner(self, *given)

        return optimise

    return put_in._session("optimise", make)


def lost(begins: int) -> Injection:
    """The weights of the beginning come back at the onset, once."""

    def make(world: World, inner: Any) -> Any:
        def draw(self: Any, step: int, position: int) -> Any:
            import copy

            model = self.setup.policy.model
            if step == 1:
                world.kept["first"] = copy.deepcopy(model.state_dict())
            if step == begins:
                model.load_state_dict(world.kept["first"])
            return inner(self, step, position)

        return draw

    return put_in._session("draw", make)


def stuck(begins: int) -> Injection:
    """The sampler keeps the weights of the onset."""
    return put_in._sampler_weights(put_in._stuck(begins))


def patched(place: Callable[[], tuple[Any, str]], make: Callable[[World, Any], Any]) -> Callable[[int], Injection]:
    """A replaced function, from the onset on."""
    return gated(catalogue._patch(place, make))


def paid(change: Callable[[float, str, str], float]) -> Callable[[int], Injection]:
    """Another reward in training, from the onset on."""
    return gated(put_in._paid(change))


PLAIN = {"correction": "none"}
FALLEN = ("constant reward", "never paid", "dead after a fall", "no reward")
NUMERICS = ("sampler numerics differ", "sampler mismatch", "sampler temperature differs", "inputs differ")

LIVE: tuple[LiveFault, ...] = (
    LiveFault("rate × 30", ("high learning rate", "kl blow-up"), rate(30.0)),
    LiveFault("rate 0", ("zero learning rate",), rate(0.0)),
    LiveFault("weights stop reaching the sampler", (*NEVER_ARRIVED, "sampler mismatch"), stuck, PLAIN, gradual=True),
    LiveFault("sampler with other numerics", NUMERICS,
              gated(put_in._sampler_weights(put_in._rounded)), PLAIN),
    LiveFault("sampler reads another prompt", ("inputs differ", "sampler mismatch"),
              patched(catalogue._sample, put_in._other_prompt), PLAIN),
    LiveFault("sampler at T = 1.6", NUMERICS, patched(catalogue._sample, put_in._hotter), PLAIN),
    LiveFault("limit too short", CUT, sampled(max_tokens=9)),
    LiveFault("greedy sampler", ("greedy sampling", "copied rollouts", "prompt decides the reward", "one text"),
              sampled(temperature=1e-3), PLAIN),
    LiveFault("grader pays nothing", FALLEN, paid(lambda right, prompt, text: 0.0)),
    LiveFault("grader pays everything", ("constant reward",), paid(lambda right, prompt, text: 1.0)),
    LiveFault("grader pays length", (*HACKED, "length pays", "held-out decline"),
              paid(lambda right, prompt, text: min(len(text), 60) / 60), gradual=True),
    LiveFault("grader reads the prompt", ("prompt decides the reward",),
              paid(lambda right, prompt, text: float(int(prompt[0]) % 2))),
    LiveFault("sign reversed", ("reversed sign", "reward decline"), gated(put_in._credit(lambda c, rollouts: -c)),
              gradual=True),
    LiveFault("mask of zeros", (*NO_GRADIENT, "update not applied"),
              gated(put_in._credit(lambda c, rollouts: 0 * c)), {"kl": 0.0}),
    LiveFault("KL of the wrong sign", ("kl against its penalty", "kl blow-up"),
              objective(lambda own: replace(own, kl=-own.kl)), {"kl": 0.1}, gradual=True),
    LiveFault("beta 20", ("kl penalty outweighs the reward",), objective(lambda own: replace(own, kl=20.0))),
    LiveFault("updates not applied", ("update not applied", "lost gradient", "rung weights"),
              gated(put_in._session("optimise", put_in._no_update))),
    LiveFault("NaN in a weight", ("non-finite",), spoilt),
    LiveFault("weights lost", ("weights lost at a restart",), lost),
    LiveFault("entropy bonus of 0.3", ("entropy explosion",), objective(lambda own: replace(own, entropy=0.3)),
              gradual=True),
)  # fmt: skip
"""All faults."""


def training(fault: LiveFault, seed: int) -> trained.Training:
    """The training of a fault."""
    return trained.Training(f"live {fault.name}", seed, fault.inject(onset(seed)), {**BASE, **fault.settings}, True)


def sound(name: str, seed: int) -> trained.Training:
    """A sound training."""
    return trained.Training(f"live {name}", seed, none, {**BASE, **SOUND[name], "steps": STEPS}, False)


# ------------------------------------------------------------------------------------------------------------- replay


class Clock:
    """A clock that stands still but for what is added, and for the processor's time of this process."""

    def __init__(self) -> None:
        import time

        self._cpu, self.added = time.process_time, 0.0
        self._began = self._cpu()

    def now(self) -> float:
        """Seconds."""
        return self.added + self._cpu() - self._began


@dataclass(frozen=True)
class Told:
    """An alarm as it was told: rows, fault and grade."""

    rows: int
    fault: str
    grade: str


def growing(folder: Path, to: Path) -> Iterator[dict[str, Any]]:
    """Write the record in `folder` to `to`, row after row; each row once it is written."""
    to.mkdir()
    (to / "config.json").write_text((folder / "config.json").read_text())
    others = {}
    for name in ("groups.jsonl", "evals.jsonl"):
        path = folder / name
        others[name] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        (to / name).touch()
    for line in (folder / "steps.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name, rows in others.items():
            with (to / name).open("a") as file:
                while rows and rows[0]["step"] <= row["step"]:
                    file.write(json.dumps(rows.pop(0)) + "\n")
        with (to / "steps.jsonl").open("a") as file:
            file.write(line + "\n")
        yield row


def as_number(value: Any) -> float | None:
    """The number that a value of a record's row is, NaN and infinities, which are written as text, among them."""
    return float(value) if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity") else None


def replay(folder: Path, speed: float) -> tuple[list[Told], float]:
    """The alarms of a recorded training whose steps take `speed` seconds; and seconds of looks per step from row 200
    on, NaN where there are fewer rows."""
    import numpy as np

    from grposcope.logs import tail
    from grposcope.watch import live

    clock, told, rows = Clock(), [], 0

    class Receiver:
        name = "benchmark"

        def alert(self, alert: Any) -> None:
            raise NotImplementedError

    class Sender:
        def __init__(self, *given: Any) -> None: ...

        def send(self, alert: Any) -> None:
            told.append(Told(rows, alert.fault, alert.grade))

        def failures(self) -> list[str]:
            return []

        def wait(self, until: float) -> None: ...

    looked: list[float] = []
    with (
        tempfile.TemporaryDirectory() as place,
        mock.patch.object(tail, "time", mock.Mock(monotonic=clock.now)),
        mock.patch.object(live, "time", mock.Mock(perf_counter=clock.now)),
        mock.patch.object(live.alerts, "Sender", Sender),
    ):
        to = Path(place) / "run"
        alarms = None
        for row in growing(folder, to):
            if alarms is None:
                alarms = live.LiveAlarms(to, [Receiver()], 0, lambda line: None)
            rows += 1
            before = clock.now()
            alarms.step({name: number for name, value in row.items() if (number := as_number(value)) is not None})
            looked.append(clock.now() - before)
            clock.added += speed
    return told, float(np.mean(looked[200:])) if len(looked) > 200 else float("nan")


@dataclass(frozen=True)
class Alarmed:
    """A fault at a speed: rows after the onset until a right alarm, and any, None for never; the names in order."""

    fault: LiveFault
    seed: int
    speed: float
    right: int | None
    first: int | None
    names: tuple[str, ...]
    repeats: int


def judged(fault: LiveFault, seed: int, speed: float) -> Alarmed:
    """The alarms of a fault at a speed."""
    told, _ = replay(FOLDER / training(fault, seed).folder, speed)
    late = [one for one in told if one.rows >= onset(seed)]
    right = next((one.rows - onset(seed) for one in late if one.fault in fault.right), None)
    first = late[0].rows - onset(seed) if late else None
    repeats = len(told) - len({(one.fault, one.grade) for one in told})
    return Alarmed(fault, seed, speed, right, first, tuple(f"{one.fault}@{one.rows}" for one in told), repeats)


def table(results: Sequence[Alarmed]) -> list[str]:
    """Delays by fault and speed, and the sums."""
    seeds = sorted({one.seed for one in results})
    lines = ["| fault | " + " | ".join(f"{speed:g} s" for speed in SPEEDS) + " | first alarms at 1 s a step |",
             "|---|" + "---|" * (len(SPEEDS) + 1)]  # fmt: skip
    for fault in LIVE:
        own = [one for one in results if one.fault is fault]
        cells = [", ".join("–" if one.right is None else str(one.right) for one in own if one.speed == speed)
                 for speed in SPEEDS]  # fmt: skip
        names = "; ".join(", ".join(one.names[:3]) for one in own if one.speed == 1.0)
        lines.append(f"| {fault.name}{' (gradual)' if fault.gradual else ''} | {' | '.join(cells)} | {names} |")
    lines += ["", "| | " + " | ".join(f"{speed:g} s" for speed in SPEEDS) + " |", "|---|" + "---|" * len(SPEEDS)]
    for seed in seeds:
        counts = [sum(one.right is not None for one in results if (one.seed, one.speed) == (seed, speed))
                  for speed in SPEEDS]  # fmt: skip
        lines.append(f"| right cause, seed {seed}, of {len(LIVE)} | {' | '.join(map(str, counts))} |")
    for name, gradual in (("gross", False), ("gradual", True)):
        delays = [[STEPS if one.right is None else one.right for one in results
                   if one.speed == speed and one.fault.gradual == gradual] for speed in SPEEDS]  # fmt: skip
        middle = [f"{statistics.median(rows):g}" if rows else "–" for rows in delays]
        lines.append(f"| median delay, {name} | {' | '.join(middle)} |")
    repeats = [sum(one.repeats for one in results if one.speed == speed) for speed in SPEEDS]
    return [*lines, f"| lines that were told again | {' | '.join(map(str, repeats))} |", ""]


def needless(count: int) -> list[str]:
    """Sound trainings that would have been stopped."""
    lines, stopped, warned, total = [], 0, 0, 0
    for name in SOUND:
        for seed in range(count):
            folder = FOLDER / sound(name, seed).folder
            if not (folder / "done.json").exists():
                continue
            each = [replay(folder, speed)[0] for speed in SPEEDS]
            total += 1
            bad = sorted({one.fault for told in each for one in told if one.grade == "failing"})
            stopped += bool(bad)
            warned += any(told for told in each)
            if any(each):
                lines.append(f"{folder.name}: {[(one.rows, one.fault, one.grade) for one in max(each, key=len)]}")
    return [*lines, f"{stopped} of {total} sound trainings stopped, {warned} warned of anything", ""]


def made(count: int) -> list[str]:
    """Healthy made-up runs that would have been stopped, looked at as `Alarms` does at rows that are free."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
    import plain_runs

    from grposcope.faults.looks import first_rows
    from grposcope.watch.alarms import Alarms

    lines, stopped, warned, total = [], 0, 0, 0
    kinds = [name for name, (fate, _) in plain_runs.KINDS.items() if fate == "healthy"]
    for name in kinds:
        for seed in range(60_000, 60_000 + count):
            run, alarms = plain_runs.of_seed(name, seed).run, Alarms()
            told = [alarm for rows in range(1, run.steps + 1) if alarms.free(rows) or alarms.due(rows)
                    for alarm in alarms.look(first_rows(run, rows))]  # fmt: skip
            total += 1
            stopped += any(alarm.grade == "failing" for alarm in told)
            bad = [alarm for alarm in told if alarm.grade != "note"]
            warned += bool(bad)
            if bad:
                lines.append(f"{name} {seed} of {run.steps}: {[(a.seen, a.fault, a.grade) for a in bad]}")
    return [*lines, f"{stopped} of {total} made-up sound runs stopped, {warned} warned of anything", ""]


def main() -> None:
    """Train, or score."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("train", "sound", "score", "needless", "made"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    chosen = [fault for fault in LIVE if given.only in fault.name]
    if given.what == "train":
        trained.make([training(fault, seed) for seed in given.seeds for fault in chosen], FOLDER)
    elif given.what == "sound":
        trained.make([sound(name, seed) for seed in range(given.count) for name in SOUND], FOLDER)
    elif given.what == "score":
        results = [judged(fault, seed, speed) for fault in chosen for seed in given.seeds for speed in SPEEDS]
        print("\n".join(table(results)))
    else:
        print("\n".join(needless(given.count) if given.what == "needless" else made(given.count)))


if __name__ == "__main__":
    main()
