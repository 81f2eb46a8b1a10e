"""Answer on a sweep of softmax bandits: what was simulated, beside what the closed form says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grposcope.core.answer import Answer, KeyNumber, Table, exactly
from grposcope.core.estimate import Estimate
from grposcope.core.text import number
from grposcope.instruments.dynamics import BANDIT, refresh
from grposcope.instruments.dynamics.bandit import Array, Bandit


@dataclass(frozen=True)
class _Simulated:
    """A setting of the sweep.

    group: 0 for the exact expected gradient. value (S,): expected reward by step, mean over runs. end: its mean over
    the last quarter; swing: its range there, mean over runs. margin: what the closed form says, for a frozen force.
    """

    lr: float
    momentum: float
    interval: int
    group: int
    value: Array
    end: Estimate
    swing: float
    margin: refresh.Margin

    @property
    def label(self) -> str:
        """The setting in symbols."""
        return f"η {self.lr:g} β {self.momentum:g} N {self.interval:g} G {self.group or 'exact'}"


@dataclass(frozen=True)
class Sweep:
    """A bandit, every combination of the lists, and `runs` seeds from `seed` on of each that is sampled."""

    bandit: Bandit
    lr: list[float]
    momentum: list[float]
    interval: list[int]
    group: list[int]
    steps: int
    runs: int
    seed: int = 0
    advantage: str = "leave_one_out"
    ratio: Literal["none", "unclipped", "clipped"] = "none"
    kl_in: Literal["reward", "loss"] = "reward"
    binary: bool = False

    def simulate(self) -> list[_Simulated]:
        """The rows, group after group; UserError for settings that cannot work."""
        return [row for group in self.group for row in self._of_group(group)]

    def _of_group(self, group: int) -> list[_Simulated]:
        seeds = np.arange(self.runs if group else 1) + self.seed
        grid = _settings_grid(lr=self.lr, momentum=self.momentum, interval=self.interval, seed=seeds.tolist())
        done = self.bandit.simulate(grid["lr"], grid["momentum"], grid["interval"], group or None, self.steps,
                                    grid["seed"].astype(int), advantage=self.advantage, ratio=self.ratio,
                                    kl_in=self.kl_in, binary=self.binary)  # fmt: skip
        value = done.value.reshape(-1, len(seeds), self.steps + 1)
        late = value[:, :, -max(1, self.steps // 4) :]
        first = (grid[name].reshape(-1, len(seeds))[:, 0] for name in ("lr", "momentum", "interval"))
        kappa = float(self.bandit.stiffness()[0])
        return [
            _Simulated(float(lr), float(momentum), int(interval), group, value[i].mean(0),
                end=Estimate.mean(late[i].mean(1).tolist()), swing=float(np.mean(np.ptp(late[i], axis=1))),
                margin=refresh.margin(float(lr), float(momentum), kappa, int(interval)))
            for i, (lr, momentum, interval) in enumerate(zip(*first, strict=True))
        ]  # fmt: skip


def _settings_grid(**values: Sequence[float]) -> dict[str, Array]:
    """All combinations of the given values, as flat arrays to pass to `simulate`."""
    mesh = np.meshgrid(*(np.asarray(v) for v in values.values()), indexing="ij")
    return {name: m.reshape(-1) for name, m in zip(values, mesh, strict=True)}


def of_rows(bandit: Bandit, rows: list[_Simulated]) -> Answer:
    """What the closed form says of the settings, and a table of what they did."""
    contexts, arms = bandit.rewards.shape
    kappa, goal = float(bandit.stiffness()[0]), float(bandit.value(bandit.fixed_point()))
    stable = sum(row.margin.stable is True for row in rows)
    return Answer(
        "bandit",
        BANDIT.question,
        sentence=(
            f"By the closed form, for a force frozen between refreshes, {stable} of {len(rows)} settings are stable. "
            "If it is right, only these settle, and the late values of the others swing."
        ),
        numbers=[
            KeyNumber("curvature κ", exactly(kappa), number(kappa), "from the Jacobian"),
            KeyNumber(
                "fixed point", exactly(goal), number(goal), f"expected reward, {contexts} contexts × {arms} arms"
            ),
        ],
        tables=[_table(rows)],
        document={"curvature": kappa, "fixed_point": goal, "rows": [_numbers(row) for row in rows]},
    )


def _table(rows: list[_Simulated]) -> Table:
    header = ("η", "β", "N", "G", "late value", "swing", "N*", "radius", "frozen force")
    cells = [
        (f"{row.lr:g}", f"{row.momentum:g}", str(row.interval), str(row.group or "exact"),
         _shown(row.end), f"{row.swing:.3f}", number(row.margin.threshold),
         f"{row.margin.radius:.3f}", "stable" if row.margin.stable else "unstable")
        for row in rows
    ]  # fmt: skip
    return Table("Settings", header, cells, "N*: largest stable interval; radius: growth of a disturbance in a cycle.")


def _shown(end: Estimate) -> str:
    return f"{end.value:.3f} ± {end.se:.2g}" if math.isfinite(end.se) else f"{end.value:.3f}"


def _numbers(row: _Simulated) -> dict[str, object]:
    return {
        "lr": row.lr, "momentum": row.momentum, "interval": row.interval, "group": row.group or "exact", "end": row.end,
        "swing": row.swing, "threshold": row.margin.threshold, "radius": row.margin.radius, "stable": row.margin.stable,
    }  # fmt: skip
