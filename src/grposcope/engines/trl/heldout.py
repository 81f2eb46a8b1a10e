"""Held-out evaluation, progress and leaving early in a run of TRL, as in our own loop: callbacks of its Trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from transformers import TrainerCallback

from grposcope.core.estimate import Estimate
from grposcope.engines.trl.callback import GRPOscopeCallback
from grposcope.engines.trl.processes import anywhere
from grposcope.lab.sampling.termination import Termination
from grposcope.watch.loggers import Progress


class HeldOutScores(TrainerCallback):
    """Evaluates on held-out problems before the first step, every `every` steps (0: never) and after the last.

    evaluate: makes the estimates. Every process makes them, the same ones: a model whose weights are spread over
    processes can only be called by all of them. The main process records them. scores: step and pass@1 of each.
    """

    def __init__(
        self,
        evaluate: Callable[[], dict[str, Estimate]],
        every: int,
        record: GRPOscopeCallback,
        progress: Progress | None,
    ) -> None:
        self._evaluate, self._every, self._record, self._progress = evaluate, every, record, progress
        self.scores: list[tuple[int, Estimate]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The first evaluation of a run that is not resumed."""
        if not state.global_step:
            self._now(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An evaluation where one is due."""
        step = state.global_step
        if step == state.max_steps or (self._every and step % self._every == 0):
            self._now(state)

    def _now(self, state: Any) -> None:
        accuracy = self._evaluate()
        if not state.is_world_process_zero:
            return
        self.scores.append((state.global_step, accuracy["pass@1"]))
        self._record.evaluation(state.global_step, {name: asdict(value) for name, value in accuracy.items()})
        if self._progress is not None:
            self._progress.evaluation(state.global_step, accuracy["pass@1"])


class Bar(TrainerCallback):
    """Shows the steps of the main process on our progress bar, in place of the lines that transformers prints."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Show an optimiser step."""
        if logs and "reward" in logs and state.is_world_process_zero:
            numbers = {"length": "completions/mean_length", "entropy": "entropy", "kl": "kl"}
            shown = " · ".join(f"{name} {logs[key]:.3g}" for name, key in numbers.items() if key in logs)
            self._progress.show(logs["reward"], shown)


class Leave(TrainerCallback):
    """Ends the training with a checkpoint once any process was asked to end (SIGTERM), in all at the same step."""

    def __init__(self, termination: Termination) -> None:
        self._termination = termination
        self.left = False

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Stop and save if asked to."""
        if state.global_step < state.max_steps and anywhere(self._termination.asked, args):
            self.left = control.should_training_stop = control.should_save = True
