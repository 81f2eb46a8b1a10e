"""A callback for TRL that records a run of GRPOTrainer in our format, diagnoses it as it goes, and may stop it.

    from grposcope.engines.trl import GRPOscopeCallback

    trainer = GRPOTrainer(…, callbacks=[GRPOscopeCallback()])

The record is OUTPUT_DIR/grposcope, readable during and after the run: `grposcope watch`, `report`, `diagnose`. Only the
main process writes. A failure of the callback is reported once and never ends the training. The time for diagnosis is
kept to a share of the run's (BUDGET), except that a loss that is not finite, or a metric that changes at once, is
diagnosed at once. TRL shows a callback
only means; single rewards, and texts that are read for what is paid in them, are taken from the files that
log_completions=True writes.

The record of a TRL run: its configuration, its beginning, and its continuation after a resume.

When a run is resumed from checkpoint-N, its record is cut back to step N, since TRL repeats the later steps. When a run
begins in a folder with the record of an earlier run, that record is renamed to grposcope-1, -2, …: nothing is deleted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from grposcope.core.environment import environment
from grposcope.core.errors import UserError
from grposcope.core.finding import Finding
from grposcope.core.not_finite import not_finite_in
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.engines.trl import versions
from grposcope.engines.trl.lines import RecordLines
from grposcope.engines.trl.processes import anywhere, say
from grposcope.instruments import has
from grposcope.instruments.diagnosis.verdict import present_faults, verdict
from grposcope.lab.train.moved_weights import MovedWeights
from grposcope.logs import RunWriter
from grposcope.logs.native import reader
from grposcope.logs.native.schema import LINES, ModelInfo, RunConfig
from grposcope.logs.native.writer import check_unlocked
from grposcope.logs.tail import Pace
from grposcope.logs.trainers import trl_completions
from grposcope.logs.trainers.trl import TRL
from grposcope.logs.trainers.trl_output import RECORD
from grposcope.watch import alarm_file, alerts, receivers
from grposcope.watch.alarms import BUDGET, FIRST, Alarms, Wanted, wanted
from grposcope.watch.alerts import Sender
from grposcope.watch.row_signs import RowSigns
from grposcope.watch.text_looks import TextLooks
from grposcope.watch.wording import alarm_alert, alarm_line

PROBED = ("save", "end")
"""Moments at which the gradient can be probed."""

STEPPED_ELSEWHERE = ("DeepSpeed", "Megatron")
"""Beginnings of the names of optimisers whose step was made before they are asked for one."""

LINE = 1000
"""Largest number of characters of a verdict or an alarm on the terminal."""

logger = logging.getLogger("grposcope")


def _harmless(event: Callable[..., None]) -> Callable[..., None]:
    """Wrap an event of the main process: its failure is reported once and ends the record, never the training."""

    @functools.wraps(event)
    def guarded(self: GRPOscopeCallback, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not state.is_world_process_zero or self._broken:
            return
        began = time.perf_counter()
        try:
            event(self, args, state, control, **more)
        except Exception as error:
            self._broken = True
            what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            say(f"grposcope: {what}; the training continues without a record")
            logger.debug("the callback failed", exc_info=True)
        finally:
            self.seconds += time.perf_counter() - began

    return guarded


class GRPOscopeCallback(TrainerCallback):
    """Records the run, diagnoses it, warns once per onset of a failure, and stops it for what `stop_on` names.

    folder: of the record, OUTPUT_DIR/grposcope by default. stop_on: modes of docs/diagnosis.md, such as
    ("non-finite", "kl blow-up"), or a grade: ("failing",) for what stops or reverses learning. alert_to: who is told of
    alarms besides the terminal: "wandb" (the active run), "tensorboard", and URLs: Slack's and Discord's are known,
    others get JSON, "slack:URL" Slack's format. alert_on: which alarms, modes or a grade as in stop_on; by default
    warnings and failures. A mode that ends the run is always told.
    probe_at: when the gradient is probed on the completions that TRL wrote last (log_completions=True): "save", at each
    checkpoint, "end", or both; the probes are in the record and on its page. UserError for an unknown name, an invalid
    URL, or a version of TRL that is too old. seconds: time that the callback has taken so far. more: fields of
    RunConfig for config.json in place of what TRL's arguments say, mappings added to theirs: {"settings": {…}}.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        stop_on: str | Iterable[str] = (),
        alert_to: str | Iterable[str] = (),
        alert_on: str | Iterable[str] = "warning",
        probe_at: str | Iterable[str] = (),
    ) -> None:
        self._note = versions.check("callback")
        self.folder = None if folder is None else Path(folder)
        self.stop_on, self.alert_on = _wanted("stop_on", stop_on), _wanted("alert_on", alert_on)
        self.alert_to = receivers.checked(alert_to)
        self.probe_at = (probe_at,) if isinstance(probe_at, str) else tuple(probe_at)
        if odd := [name for name in self.probe_at if name not in PROBED]:
            raise UserError(f"probe_at {odd[0]!r} is unknown; use one or both of {', '.join(PROBED)}")
        self.seconds = 0.0
        self.more: dict[str, Any] = {}
        self._senders: list[Sender] = []
        self._broken = self._stop = False
        self._probed = -1
        self._record: RunWriter | None = None
        self._row: dict[str, Any] = {}
        self._closing: dict[str, Any] = {}
        self._odd: set[str] = set()
        self._urgent = self._changed = False
        self._before: MovedWeights | None = None
        self._moved: list[float] = []

    @property
    def record_folder(self) -> Path | None:
        """Folder of the record while the run goes on, in the main process; None otherwise."""
        return None if self._record is None else self._record.folder

    def regrouped(self, first: int, group: int) -> None:
        """Take the batches from step `first` on as groups of this size."""
        if not self._broken:
            self._lines.sizes[first] = group

    @_harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Open a new record, or that of a run that is resumed, cut back to its checkpoint."""
        folder = self.folder or Path(args.output_dir) / RECORD
        self._settings = _settings(args, state)
        self._row, self._written, self._rows, self._stop = {}, state.global_step, 0, False
        raised: list[Finding] = []
        if state.global_step and (folder / "config.json").exists():
            self._record, raised, self._rows = _go_on_with_record(folder, state.global_step)
        else:
            self._record, said = _begin_record(folder, args, self._settings, more.get("model"), self.more)
            if said:
                say(f"grposcope: {said}")
        self._lines = RecordLines(self._record, self._settings)
        self._alarms = Alarms(raised, self._rows, self.stop_on.modes | self.alert_on.modes)
        self._senders = receivers.senders(self.alert_to, folder)
        self._pace, self._signs = Pace(BUDGET, FIRST / BUDGET), RowSigns()
        self._texts, self._output = TextLooks(BUDGET), Path(args.output_dir) if args.log_completions else None
        self._record.phase("training", state.global_step, state.max_steps)
        say(f"grposcope: recording to {folder}; to follow it: grposcope watch {folder}")
        for line in filter(None, (self._note, *_unseen(args, state), *receivers.missing(self.alert_to))):
            say(f"grposcope: {line}")

    @_harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Take what TRL logs: metrics, which are written at the next event, evaluations, and the closing row."""
        if self._record is None or not logs:
            return
        step = state.global_step
        held = {key: value for key, value in logs.items() if key.startswith("eval_")}
        if held:
            self._lines.evaluation(step, held)
            return
        if "train_runtime" in logs:
            self._closing = {key: value for key, value in logs.items() if isinstance(value, int | float)}
            return
        if self._row and self._row["step"] != step:
            self._flush(args, state)
        if self._moved:
            logs = {**logs, "weights_moved": statistics.fmean(self._moved)}
            self._moved = []
        self._row = {**self._row, **logs, "step": step}
        odd = not_finite_in(logs)
        self._urgent |= bool(odd - self._odd)
        self._odd |= odd

    @_harmless
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep some of the weights as they are before a step of the optimiser."""
        steps_here = not type(more.get("optimizer")).__name__.startswith(STEPPED_ELSEWHERE)
        model = more.get("model")
        self._before = MovedWeights(model.parameters()) if model is not None and steps_here else None

    @_harmless
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Take note of the share of these that the step changed."""
        if self._before is not None:
            self._moved.append(self._before.share())
            self._before = None

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the training if something that `stop_on` names was flagged: in all processes at the same step."""
        if self.stop_on and anywhere(self._stop, args):
            control.should_training_stop = True

    @_harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write what the last step logged, and diagnose the run if it is due."""
        self._flush(args, state)

    @_harmless
    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write what was logged before an evaluation, whose rollouts replace those of the step."""
        self._flush(args, state)

    @_harmless
    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Flush the record to the disk, since the checkpoint is there too."""
        self._flush(args, state)
        if self._record is not None:
            self._record.sync()
            if "save" in self.probe_at:
                self._probe(args, state, more)

    @_harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Diagnose the whole run, close the record, and print the verdict."""
        if self._record is None:
            return
        self._flush(args, state, judge=False)
        if "end" in self.probe_at and self._probed != state.global_step:
            self._probe(args, state, more)
        run = self._judge(last=True)
        done = state.global_step >= state.max_steps
        findings = self._alarms.findings
        judged = verdict(run, findings) if findings else None
        said = str(judged) if judged else ""
        self._record.summary({
            "verdict": said, "grade": judged.word if judged else "cannot tell", "present": present_faults(findings),
            "steps": state.global_step, "interrupted": not done, **self._closing,
        })  # fmt: skip
        self._record.phase("finished" if done else "interrupted", state.global_step, state.max_steps)
        self._record.close()
        if self._lines.waiting:
            say(
                (
                    f"grposcope: {len(self._lines.waiting)} lines of the record were not written, because the disk is "
                    "full"
                ),
                logging.WARNING,
            )
        if said:
            say(f"grposcope: {visible(said, LINE)}")
        for line in _probed(self._record.folder, self._settings.get("group")):
            say(f"grposcope: {visible(line, LINE)}")
        say(f"grposcope: the whole run on one page: grposcope report {self._record.folder}")
        self._record = None
        for line in alerts.wait(self._senders):
            say(f"grposcope: {visible(line, LINE)}")

    def evaluation(self, step: int, estimates: Mapping[str, Any]) -> None:
        """Record a held-out evaluation: by metric, the fields of an Estimate. Without a record, nothing happens."""
        if self._record is not None:
            self._record.evaluation({"step": step, **estimates})

    def _flush(self, args: Any, state: Any, judge: bool = True) -> None:
        """Write the pending row and its groups; then diagnose the run, if that is due."""
        row, self._row = self._row, {}
        if self._record is None or not row or row["step"] <= self._written:
            return
        self._written = row["step"]
        self._lines.step(row["step"], {key: value for key, value in row.items() if key != "step"})
        self._rows += 1
        self._changed |= self._signs.take(row)
        if args.log_completions and "reward" in row:
            self._lines.groups(args, row["step"])
        self._lines.put(functools.partial(self._record.phase, "training", state.global_step, state.max_steps))
        due = self._alarms.free(self._rows) or self._alarms.due(self._rows, self._pace, self._changed)
        if judge and (self._urgent or due):
            self._urgent = self._changed = False
            began = time.perf_counter()
            self._judge()
            self._pace.spent(time.perf_counter() - began)

    def _probe(self, args: Any, state: Any, given: Mapping[str, Any]) -> None:
        """Probe the model; a failure is said, and neither training nor record end by it."""
        assert self._record is not None
        step, began = state.global_step, time.perf_counter()
        try:
            from grposcope.engines.trl import checkpoint_probe

            place = checkpoint_probe.written(
                self._record.folder, args, step, given["model"], given["processing_class"], self._lines.functions
            )
        except Exception as error:
            what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            say(f"grposcope: no probe after step {step}: {visible(what, LINE)}", logging.WARNING)
            logger.debug("the probe failed", exc_info=True)
            return
        self._probed = step
        say(f"grposcope: probed after step {step} in {time.perf_counter() - began:.1f} s: {place}")

    def _judge(self, last: bool = False) -> Run:
        """Diagnose the record, read the completions if that is due, and raise new alarms; the run as it was read."""
        assert self._record is not None
        run = reader.read(self._record.folder)
        texts = {} if self._output is None else trl_completions.by_step(self._output, self._lines.functions)
        new = self._alarms.look(run, self._texts.look(texts, now=last), last)
        self._lines.put(functools.partial(alarm_file.append, self._record.folder, new))
        for alarm in new:
            ends, follows = self.stop_on.covers(alarm.fault, alarm.grade), self._alarms.follows(alarm)
            if not follows:
                say(
                    f"grposcope: {visible(alarm_line(alarm), LINE)}",
                    logging.INFO if alarm.grade == "note" else logging.WARNING,
                )
            if ends or (not follows and self.alert_on.covers(alarm.fault, alarm.grade)):
                for sender in self._senders:
                    sender.send(alarm_alert(alarm, str(run.meta.source)))
            if ends:
                self._stop = True
                say(f"grposcope: the run ends after the next step because of {alarm.fault} (stop_on)", logging.WARNING)
        for line in alerts.failures(self._senders):
            say(f"grposcope: {visible(line, LINE)}")
        return run


def _wanted(setting: str, names: str | Iterable[str]) -> Wanted:
    try:
        return wanted([names] if isinstance(names, str) else names)
    except UserError as error:
        raise UserError(f"{setting} {error}") from None


_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def _settings(args: Any, state: Any) -> dict[str, Any]:
    """Settings of the trainer under our names, and `window`, the number of steps that each row is the mean over."""
    every = args.logging_steps if isinstance(args.logging_steps, int) and args.logging_steps >= 1 else 1
    settings: dict[str, Any] = {"trainer": "rloo" if "RLOO" in type(args).__name__ else "grpo", "window": every}
    with contextlib.suppress(PackageNotFoundError):
        settings["trl_version"] = version("trl")
    if state.max_steps and state.max_steps > 0:
        settings["steps"] = state.max_steps
    return TRL.settings_of(args.to_dict(), {}, settings)


def _unseen(args: Any, state: Any) -> list[str]:
    """What a run with these settings will not show, and the setting of TRL that changes it, a sentence each."""
    told = []
    if not args.log_completions:
        told.append("Without log_completions=True the record has no single rewards, groups or completions: set it.")
    every = args.logging_steps if isinstance(args.logging_steps, int) and args.logging_steps > 1 else 1
    if every > 1:
        rows = max(state.max_steps or 0, 0) // every
        few = f", {rows} rows in all, and changes are tested from 30 rows on" if 0 < rows < 30 else ""
        told.append(f"With logging_steps={every}, each row is the mean of {every} steps{few}: set logging_steps=1.")
    return told


def _begin_record(
    folder: Path, args: Any, settings: Mapping[str, Any], model: Any, more: Mapping[str, Any] | None = None
) -> tuple[RunWriter, str]:
    """The record of a new run, and a sentence on where the record of an earlier run is now, if there was one.

    more: fields of RunConfig in place of these; the entries of a mapping are added.
    """
    renamed = _rename_earlier(folder)
    config = _configuration(args, settings, model)
    added: dict[str, Any] = {
        field: {**getattr(config, field), **new} if isinstance(new, Mapping) else new
        for field, new in (more or {}).items()
    }
    output = Path(args.output_dir).resolve()  # TRL makes it before the training begins
    beside = (output.name,) if output.parent == folder.resolve() else ()
    return RunWriter.create(folder, replace(config, **added), beside), renamed


def _go_on_with_record(folder: Path, step: int) -> tuple[RunWriter, list[Finding], int]:
    """The record of a run that is resumed at `step`, cut back to it; its alarms and its number of rows up to then."""
    sizes, rows = _sizes(folder, step)
    return RunWriter.reopen(folder, sizes, step), alarm_file.cut_back(folder, step), rows


def _probed(folder: Path, group: object) -> list[str]:
    """What the last probe of a run found, and the best group size by it; nothing for a run without probes."""
    said: list[str] = []
    if has("gradient"):
        from grposcope.instruments.gradient import findings as geometry
        from grposcope.instruments.gradient import probe_record as probes

        if records := probes.in_folder(folder):
            which = f"the last of {len(records)} probes" if len(records) > 1 else "the probe"
            said.append(f"{which}: {geometry.brief(records[-1])}")
            if has("group_size"):
                from grposcope.instruments.group_size import size as group_size

                said.append(group_size.of_probe(records[-1], ()).sentence(group if isinstance(group, int) else None))
    return said


def _configuration(args: Any, settings: Mapping[str, Any], model: Any) -> RunConfig:
    """The content of config.json. (TRL itself replaces access tokens in its arguments by their names.)"""
    logged = {key: value for key, value in args.to_dict().items() if value is not None}
    architecture = type(model).__name__
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or architecture
    count = sum(weights.numel() for weights in model.parameters()) if hasattr(model, "parameters") else None
    groups = "from completions/" if args.log_completions else "not recorded: log_completions is off"
    return RunConfig(
        engine="trl",
        name=getattr(args, "run_name", None) or Path(args.output_dir).resolve().name,
        window=settings["window"],
        model=ModelInfo(name, architecture, count),
        settings=json.loads(json.dumps(dict(settings), default=str)),
        resolved={"groups": groups, "logged": json.loads(json.dumps(logged, default=str))},
        environment=environment(),
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _rename_earlier(folder: Path) -> str:
    """Rename the record of an earlier run; a sentence about it, empty if there is none."""
    if not (folder / "config.json").exists():
        return ""
    check_unlocked(folder)
    free = (folder.with_name(f"{folder.name}-{n}") for n in range(1, 10**6))
    target = folder.rename(next(path for path in free if not path.exists()))
    return f"the record of an earlier run is now {target}"


def _sizes(folder: Path, step: int) -> tuple[dict[str, int], int]:
    """Size in bytes of each file up to its last complete line of `step`, and the number of rows of steps.jsonl."""
    sizes, rows = dict.fromkeys(LINES, 0), 0
    for name in LINES:
        with contextlib.suppress(FileNotFoundError), (folder / f"{name}.jsonl").open("rb") as file:
            for line in file:
                match = _STEP.match(line)
                if not match or int(match[1]) > step or not line.endswith(b"\n"):
                    break
                sizes[name] += len(line)
                rows += name == "steps"
    return sizes, rows
