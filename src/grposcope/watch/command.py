"""`grposcope watch`: a run in progress in the terminal, whichever trainer writes it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grposcope.commands import log_flags as logs
from grposcope.commands.log_flags import LogFlags
from grposcope.commands.output import finish, json_flag, say
from grposcope.commands.watch_flags import alert_flag, senders, wanted_by, webhook_flag, writers
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of

if TYPE_CHECKING:
    from grposcope.core.finding import Finding
    from grposcope.logs.hints import Hints
    from grposcope.watch.advice import Advice
    from grposcope.watch.alarms import Wanted
    from grposcope.watch.alerts import Delivers
    from grposcope.watch.changes import Change, WatchedState
    from grposcope.watch.follow import Watcher
    from grposcope.watch.serve import Server

DESCRIPTION = (
    "Follow a run while it is written: progress, the main metrics as sparklines, and what is wrong "
    "with it, each failure reported once when it begins. Exit status: 0 when the run has ended or on Ctrl-C, 1 as "
    "soon as something that --fail-on names is flagged, 2 if there is nothing to follow."
)
EXAMPLES = """\
examples:
  grposcope watch runs/demo                        until the run ends; Ctrl-C leaves, the run goes on
  grposcope watch outputs                          output folder of TRL, with or without the callback
  grposcope watch train.log --set group=8          console output of verl, OpenRLHF or TRL; JSONL, CSV, W&B folders
  grposcope watch runs/demo --every 10             look every ten seconds, for a folder synced from elsewhere
  grposcope watch runs/demo --once                 one look
  grposcope watch RUN --fail-on failing            leave with exit status 1 when learning stops or reverses
  grposcope watch RUN --webhook https://hooks.slack.com/services/…       tell Slack; other URLs get JSON
  grposcope watch RUN --autopilot advise --run-command 'scancel 4711'    what an autopilot would do, to a scheduler
  grposcope watch RUN --serve                        the page in a browser, renewed as the run grows; /metrics
  grposcope watch RUN --write-to wandb:team/math/3f2k9q1x                the verdict in your own run of W&B
  grposcope watch RUN --json                         a line for each change, for a scheduler or an agent
"""


def _fail_on() -> str:
    """Help of --fail-on."""
    from grposcope.faults.catalogue import seen_in_runs

    return (
        "leave with exit status 1 when this fault, or any of this grade or worse (failing, warning, note), is "
        "first flagged; a grade leaves out no learning and zero loss, which any run shows at first; may be given "
        "more than once. Faults: " + ", ".join(seen_in_runs())
    )


_what = partial(flag, group="what")
_how = partial(flag, group="how")
_alarm = partial(flag, group="alarms")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope watch`."""

    path: str = _what(
        names=(), metavar="RUN", help="folder or log of a run, of any supported trainer; it need not exist yet"
    )
    log: LogFlags = flags_of(LogFlags, log_paths="path")
    once: bool = _how(default=False, help="print the screen once and leave")
    serve: str | None = _how(
        nargs="?",
        const="8800",
        metavar="PORT",
        help="also serve the page of the run to browsers on this machine, renewed as the run grows, and "
        "its levels to Prometheus at /metrics; HOST:PORT for another address, with a token "
        "(default: 8800)",
    )
    json: bool = json_flag(
        group="how",
        help="print a JSON object on a line for each change of the verdict or of a rule, and the document at the "
        "end; with --once the document alone",
    )
    every: float = _how(
        default=1.0,
        metavar="SECONDS",
        help="seconds between readings of the log (default: 1.0); up to 15 s where a reading is slow",
    )
    fail_on: list[str] = _alarm(
        default=[],
        action="append",
        metavar="GRADE|FAULT",
        help=_fail_on,
    )
    autopilot: str = _alarm(
        default="off",
        metavar="advise[:LIMITS]",
        help="also say what an autopilot would do, on the screen, in the stream, to webhooks and "
        "commands (default: off)",
    )
    webhook: list[str] = webhook_flag("each new flag", group="alarms")
    alert_on: list[str] = alert_flag(group="alarms")
    run_command: list[str] = _alarm(
        default=[],
        action="append",
        metavar="COMMAND",
        help="run this for each new flag that --webhook would tell of, without a shell, with the JSON "
        "document on its standard input; {run}, {fault}, {grade} and {step} are replaced. It has "
        "10 s. May be given more than once",
    )
    write_to: list[str] = _alarm(
        default=[],
        action="append",
        metavar="KIND:RUN",
        help="write the verdict into one of your runs each time it changes, and the alarms that --webhook would "
        "report: wandb:[ENTITY/]PROJECT/RUN_ID, mlflow:RUN_ID, tensorboard:FOLDER, trackio:PROJECT/RUN; the run must "
        "exist. May be given more than once",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look again and again until the run has ended, something of --fail-on is flagged, Ctrl-C, or once."""
    from grposcope.logs.hints import LAST
    from grposcope.watch import advice, alerts, changes, hook_command
    from grposcope.watch.follow import Watcher

    if not arguments.every > 0:
        raise UserError(f"--every {arguments.every:g} must be above 0")
    fatal, told = wanted_by("--fail-on", arguments.fail_on), wanted_by("--alert-on", arguments.alert_on or ["warning"])
    log, number = logs.numbered(arguments.path)
    hints = logs.hints(arguments, number or LAST)
    hooks = [*senders(arguments.webhook), *map(hook_command.command, arguments.run_command)]
    written = writers(arguments.write_to)
    server = _served(log, hints, arguments.serve) if arguments.serve else None
    advises = None if arguments.autopilot == "off" else advice.adviser(arguments.autopilot)
    watcher = Watcher(log, hints, fatal.modes | told.modes, advises)
    stream = bool(arguments.json and not arguments.once)
    shown, reason, state = "", "left by Ctrl-C", changes.WatchedState()
    begin: Sequence[Change] = (changes.Change("start"),)
    ending: list[Finding] = []
    try:
        while True:
            now = time.time()
            new = watcher.look(now)
            if arguments.once:
                _check_readable(watcher, log)
            shown = _show(watcher, now, shown, arguments)
            state, before = watcher.state(now), state
            changed = [*begin, *changes.between(before, state)]
            begin = ()
            _stream(stream, log, changed)
            if server is not None:
                _publish(server, watcher, now)
            ending = [alarm for alarm in new if fatal.covers(alarm.fault, alarm.grade)]
            wanted = [alarm for alarm in new if alarm in ending or told.covers(alarm.fault, alarm.grade)]
            _advise(advice.fresh(before.advice, state.advice), str(log), [*hooks, *written])
            _tell(wanted, changed, state, told, str(log), hooks, written)
            _warn(alerts.failures(written))
            if arguments.once or ending or (watcher.ended and server is None):
                reason = _reason(ending, watcher)
                break
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        pass
    if server is not None:
        server.shutdown()
    _warn(alerts.wait([*hooks, *written]))
    document = watcher.summary(time.time())
    end = {"event": "ended", "time": time.time(), "reason": reason, "status": int(bool(ending))} if stream else {}
    finish(arguments, {**end, **document})
    return int(bool(ending))


def _served(log: Path, hints: Hints, address: str) -> Server:
    """A server of the page of a run, and of its levels once they are published; says where it is."""
    from grposcope.watch.openmetrics import RunLevels, exposition
    from grposcope.watch.serve import serve

    server = serve(log, hints, address)
    nothing_yet = RunLevels(run="/".join(log.parts[-2:]))
    server.metrics = lambda accept: exposition(nothing_yet, time.time(), accept)
    print(f"page: {server.url}\nmetrics: {server.metrics_url}", file=sys.stderr)
    return server


def _publish(server: Server, watcher: Watcher, now: float) -> None:
    """Let the server answer Prometheus with the levels of the last look from now on."""
    from grposcope.watch.openmetrics import exposition, levels_of

    levels = levels_of(watcher, now)
    server.metrics = lambda accept: exposition(levels, time.time(), accept)


def _check_readable(watcher: Watcher, log: Path) -> None:
    """UserError where a single look finds no log, or one that cannot be read."""
    if not log.exists():
        raise UserError(f"{log} does not exist; give the path of a run or a log")
    if watcher.problem:
        raise UserError(logs.asked(watcher.question, watcher.problem, log))


def _warn(lines: Sequence[str]) -> None:
    """Print alerts that did not arrive, a line each."""
    from grposcope.core.text import visible

    for line in lines:
        print(visible(line, 1000), file=sys.stderr)


def _advise(decisions: Sequence[Advice], source: str, receivers: Sequence[Delivers]) -> None:
    """Send to all what an autopilot would do."""
    from grposcope.watch.wording import advice_alert

    for decision in decisions:
        for receiver in receivers:
            receiver.send(advice_alert(decision, source))


def _stream(stream: bool, path: Path, changed: Sequence[Change]) -> None:
    """Print a line of JSON for each change, where a stream of them is asked for."""
    if stream:
        from grposcope.core.files import dumps

        for change in changed:
            print(dumps(change.document(str(path), time.time())), flush=True)


def _tell(
    alarms: Sequence[Finding],
    changed: Sequence[Change],
    state: WatchedState,
    told: Wanted,
    source: str,
    hooks: Sequence[Delivers],
    written: Sequence[Delivers],
) -> None:
    """Send the alarms to all, and the verdict to those that show it; one without a flagged rule is an alarm itself."""
    from grposcope.watch.wording import alarm_alert, verdict_alert

    for alarm in alarms:
        for receiver in (*hooks, *written):
            receiver.send(alarm_alert(alarm, source))
    verdict, findings, step = state.verdict, state.findings, state.step
    if verdict is not None and any(change.event == "verdict" for change in changed):
        for writer in written:
            writer.send(verdict_alert(verdict, findings, source, step))
            if not verdict.fault and verdict.word in ("failing", "warning") and told.covers("outcome", verdict.word):
                writer.send(verdict_alert(verdict, findings, source, step, "outcome"))


def _reason(ending: Sequence[Finding], watcher: Watcher) -> str:
    """Why the watch is over, in words."""
    if ending:
        return f"--fail-on: {ending[0].grade}: {ending[0].fault}"
    return "the run has ended" if watcher.ended else "--once"


def _show(watcher: Watcher, now: float, shown: str, arguments: argparse.Namespace) -> str:
    """Print the screen: in place on a terminal, elsewhere only if it changed. Returns it without its last line."""
    screen = watcher.screen(now, shutil.get_terminal_size((100, 24)).columns)
    news = screen.partition("\nlast written")[0]
    if sys.stdout.isatty() and not (arguments.once or arguments.json):
        print(f"\x1b[H\x1b[J{screen}", flush=True)
    elif news != shown:
        say(arguments, screen)
        sys.stdout.flush()
        if getattr(arguments, "unread", False):  # nobody sees what comes
            raise BrokenPipeError
    return news
