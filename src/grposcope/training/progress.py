"""The live line of a training run on standard error."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from grposcope.records import Estimate


class Progress:
    """A bar over optimiser steps with the figures one watches; it prints lines when there is no terminal."""

    def __init__(self, steps: int, done: int = 0):
        self._bar = tqdm(total=steps, initial=done, unit="step", dynamic_ncols=True, mininterval=0.5)
        self._held_out = ""

    def step(self, row: dict[str, Any]) -> None:
        """Show an optimiser step."""
        kl = row["kl"] if row["kl"] == row["kl"] else row["kl_old"]
        shown = (
            f"reward {row['reward']:.3f}{self._held_out} · dead {row['dead_fraction']:.0%} · "
            f"entropy {row['entropy']:.3f} · kl {kl:.4f} · {row['tokens_per_second']:,.0f} tok/s"
        )
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update()

    def evaluation(self, step: int, accuracy: Estimate) -> None:
        """Show a held-out evaluation; it stays on the line."""
        self._held_out = f" · held-out {accuracy.value:.3f}±{accuracy.se:.3f}"
        self.say(f"step {step}: held-out pass@1 {accuracy.value:.3f} ± {accuracy.se:.3f}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line, file=self._bar.fp)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
