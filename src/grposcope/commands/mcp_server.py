"""`grposcope mcp`: a server of the Model Context Protocol, by which a coding agent asks what a person asks.

Each tool is a command with `--json`, run in a process of its own with a time limit, on files below one folder alone.
Answers are cut to what fits a conversation, and say what was left out. Nothing is written, and no network is used.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope import __version__
from grposcope.core import installing
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.core.text import visible

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

DESCRIPTION = (
    "Serve diagnose, explain, lint, verify, rewards, compare, plan and texts to a coding agent over the Model Context "
    "Protocol, on standard input and output. Only files below --root are read."
)
EXAMPLES = """\
examples:
  grposcope mcp --root ~/runs                                 what an agent's configuration starts
  claude mcp add grposcope -- grposcope mcp --root ~/runs     for one that is told on its command line
"""
INSTRUCTIONS = (
    "Begin with diagnose on the log or the folder of a run: its sentence is the verdict, do the remedy, decides of "
    "a finding the cheapest measurement that would settle it. explain has the page of a fault. Before a run: lint on "
    "its settings. With rollouts at hand: verify (does the pipeline do what it says), texts (what is written and "
    "paid), rewards (what the reward functions pay). Two runs: compare. How many rollouts: plan. “Cannot tell” means "
    "that the log does not decide it: say what is missing rather than guessing."
)

SECONDS = 120
"""Time limit of one answer."""

CHARACTERS = 12_000
"""Length of an answer as JSON, at most."""

OF_A_FINDING = ("fault", "status", "grade", "since", "because", "remedy", "decides")
"""What is told of a finding."""

SHORTEST = (40, 20, 10, 5, 3, 1)
"""Entries of a list that are kept, the most that fit."""


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope mcp`."""

    root: str = flag(default=".", metavar="FOLDER", help="the only folder that is read (default: this one)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    root = Path(arguments.root)
    if not root.is_dir():
        raise UserError(f"--root {root} is no folder; give the one that has the runs")
    _server(root).run("stdio")
    return 0


def _server(root: Path) -> MCPServer:
    """The server of one folder. UserError without the package `mcp`."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from pydantic import ValidationError
    except ImportError:
        raise UserError(
            f"this command needs the package mcp, which is not installed; run {installing.install('mcp')}"
        ) from None

    class Refusing(MCPServer):
        """The server, which refuses wrong arguments of a tool in one line."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            """The answer of a tool; ToolError, in one line, for arguments that it does not take."""
            schema = next((tool.input_schema for tool in await self.list_tools() if tool.name == name), None)
            if schema is not None and (line := _refusal(name, schema, arguments, ())):
                raise ToolError(line)
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:
                if schema is None or not isinstance(error.__cause__, ValidationError):
                    raise
                wrong = [str(each["loc"][0]) for each in error.__cause__.errors()]
                raise ToolError(_refusal(name, schema, arguments, wrong)) from None

    made = Refusing("grposcope", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR")

    def told(what: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """The same, with a refusal as the protocol has it."""

        def asked(*request: Any, **named: Any) -> dict[str, Any]:
            try:
                return what(*request, **named)
            except UserError as error:
                raise ToolError(str(error)) from None

        return asked

    ask, page_of = told(functools.partial(_answer, root.resolve())), told(_page)

    @made.tool()
    def diagnose(path: str, config: str | None = None) -> dict[str, Any]:
        """Is this run learning, failing or gaming its reward, and why? `path`: a log of TRL, verl, prime-rl and others,
        or the folder of a run. `config`: the file of its settings, to see what was asked for and is not in force."""
        return ask("diagnose", [path], flags={} if config is None else {"--config": config})

    @made.tool()
    def lint(path: str, success_rate: float | None = None) -> dict[str, Any]:
        """What is wrong with these settings before the run begins? `path`: a script, YAML, TOML or JSON file.
        `success_rate`: the share of rollouts that succeed at the start, from 0 to 1."""
        return ask("lint", [path], words=[] if success_rate is None else ["--success-rate", f"{float(success_rate):g}"])

    @made.tool()
    def verify(path: str) -> dict[str, Any]:
        """Does the pipeline do what it says: advantages, masks, weights at the sampler? `path`: rollouts or a run."""
        return ask("verify", [path])

    @made.tool()
    def rewards(path: str) -> dict[str, Any]:
        """What do the reward functions pay, and which of them decides? `path`: a run or its rollouts."""
        return ask("rewards", [path])

    @made.tool()
    def texts(path: str) -> dict[str, Any]:
        """What does the policy write, what of it is paid, since when, and what to read? `path`: rollouts with texts."""
        return ask("texts", [path])

    @made.tool()
    def plan(path: str) -> dict[str, Any]:
        """How many prompts and rollouts are worth paying for? `path`: a probe, or a run with groups of rewards."""
        return ask("plan", [path])

    @made.tool()
    def compare(paths: list[str]) -> dict[str, Any]:
        """How do two or more runs differ: settings first, then where they part? `paths`: their logs or folders."""
        return ask("compare", paths)

    @made.tool()
    def explain(fault: str) -> dict[str, Any]:
        """What is this fault, how does it show, what to do about it, and what would decide? `fault`: its name."""
        return page_of(fault)

    @made.resource("fault://{name}", mime_type="application/json")
    def fault_page(name: str) -> str:
        """The page of a fault."""
        return json.dumps(page_of(name.replace("-", " ")), ensure_ascii=False)

    @made.resource("run://{+path}", mime_type="application/json")
    def run_verdict(path: str) -> str:
        """What diagnose says of a run below the folder that is served."""
        return json.dumps(ask("diagnose", [path]), ensure_ascii=False)

    return made


def _refusal(tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any], wrong: Sequence[str]) -> str:
    """What is wrong with the arguments of a tool, and which it takes, in one line; empty where nothing is wrong.

    schema: JSON schema of its arguments, as the protocol lists it. wrong: arguments whose value is of another kind.
    """
    takes, needed = schema["properties"], schema.get("required", [])
    faults = [f"there is no argument {visible(name, 60)!r}" for name in arguments if name not in takes]
    faults += [f"the argument {name!r} is missing" for name in needed if name not in arguments]
    faults += [
        f"the argument {name!r} should be {_kind(takes[name])}, not {visible(json.dumps(arguments[name]), 60)}"
        for name in dict.fromkeys(wrong)
    ]
    if not faults:
        return ""
    right = [f"{name} ({_kind(takes[name])}{'' if name in needed else ', may be left out'})" for name in takes]
    return f"{tool}: {'; '.join(faults)}; its arguments: {', '.join(right)}"


def _kind(schema: Mapping[str, Any]) -> str:
    """The kind of value that the JSON schema of an argument asks for, in words."""
    kind = schema.get("anyOf", [schema])[0].get("type")
    return {"string": "text", "number": "a number", "array": "a list of texts"}.get(kind, str(kind))


def _page(fault: str) -> dict[str, Any]:
    """The page of a fault; UserError, with the nearest name, for one that there is not."""
    from grposcope.faults import catalogue, pages

    return dict(pages.document(catalogue.fault(fault)))


def _answer(
    root: Path, command: str, paths: Sequence[str], words: Sequence[str] = (), flags: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a command says of these paths below root, as JSON, cut to CHARACTERS.

    words: further arguments as they are. flags: flag -> a path, below root too. UserError where a path is not below
    root, where the command refuses its input, in its own words, and where it takes more than SECONDS.
    """
    named = [str(_below(root, path)) for path in paths]
    named += [word for flag, path in (flags or {}).items() for word in (flag, str(_below(root, path)))]
    line = [sys.executable, "-m", "grposcope", command, *named, *words, "--json"]
    try:
        done = subprocess.run(
            line, cwd=root, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{command} took more than {SECONDS} s; give it a smaller log, or run it in a terminal"
        ) from None
    if not done.stdout.strip():
        said = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise UserError(visible(said.removeprefix("grposcope: error: "), 1000))
    document = json.loads(done.stdout)
    if isinstance(document, dict) and document.keys() == {"error"}:
        raise UserError(visible(document["error"], 1000))
    return _small(document)


def _below(root: Path, path: str) -> Path:
    """A path below root, with links resolved; UserError for one outside or one that is not there."""
    place = (root / path).resolve()
    if not place.is_relative_to(root):
        raise UserError(f"{visible(path, 200)} is not below the folder that is served; give a path below it")
    if not place.exists():
        near = sorted(sibling.name for sibling in place.parent.iterdir())[:20] if place.parent.is_dir() else []
        there = f"; beside it are {', '.join(map(visible, near))}" if near else ""
        raise UserError(f"there is no {visible(path, 200)}{there}")
    return place


def _small(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document cut to CHARACTERS: findings that are present, what is told of each, and the beginnings of lists.

    How each rule tests is left out: `explain` has it.
    """
    told = {key: value for key, value in document.items() if key != "tests"}
    if isinstance(findings := told.get("findings"), list):
        present = [each for each in findings if isinstance(each, Mapping) and each.get("status") == "present"]
        told["findings"] = [{key: each.get(key) for key in OF_A_FINDING} for each in present]
        told["rules that found nothing or cannot tell"] = len(findings) - len(present)
        told.pop("present", None)
    for entries in SHORTEST:
        cut = _cut(told, entries)
        if len(json.dumps(cut, ensure_ascii=False, indent=2)) <= CHARACTERS:
            return dict(cut)
    return {key: value for key, value in _cut(told, 1).items() if isinstance(value, str | int | float | None)}


def _cut(value: Any, entries: int) -> Any:
    """A value whose lists have this many entries and a count of the others, and whose texts 100 times as many signs."""
    if isinstance(value, Mapping):
        return {key: _cut(each, entries) for key, each in value.items()}
    if isinstance(value, list):
        more = [f"… {len(value) - entries} more"] if len(value) > entries else []
        return [_cut(each, entries) for each in value[:entries]] + more
    longest = max(100 * entries, 300)
    return value if not isinstance(value, str) or len(value) <= longest else value[:longest] + "…"
