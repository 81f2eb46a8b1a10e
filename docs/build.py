"""Write cli.md, api.md, formulas.md, checks.md and the keys in readers.md from the code; a test compares them.

python docs/build.py
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import grposcope
from grposcope.cli import parser
from grposcope.commands import GROUPS
from grposcope.credit import SOURCES
from grposcope.lint.checks import CHECKS
from grposcope.lint.dialects import DIALECTS
from grposcope.runs.metrics import LOGGED, METRICS, Metric
from grposcope.runs.trainers import TRAINERS

HERE = Path(__file__).parent

FORMULAS = {
    "What a gradient is made of (arXiv:2606.29238)": (
        "geometry.class_means", "geometry.spectrum", "geometry.gram", "geometry.token_credit", "geometry.sparsity",
        "geometry.baseline",
    ),
    "How many rollouts per prompt (arXiv:2603.01162)": (
        "ustat.mse", "ustat.moments", "ustat.planning", "ustat.confidence", "ustat.standardized", "ustat.dead_groups",
        "ustat.limit",
    ),
    "Where rollouts are spent": (
        "allocation.forecast", "allocation.logistic", "allocation.beta", "allocation.scores", "allocation.norms",
        "allocation.optimal",
    ),
    "Where the reward is going (arXiv:2606.30789)": (
        "dynamics.oscillator", "dynamics.refresh", "dynamics.sampled_refresh", "dynamics.noise", "dynamics.stability",
    ),
    "How good a model is (arXiv:2107.03374)": ("ustat.pass_at_k", "ustat.crossed"),
    "Credit finer than a rollout": (
        "credit.steps", "credit.process", "credit.values", "credit.prefix", "credit.state", "credit.shaped",
        "credit.boundaries", "credit.continued", "credit.trees", "credit.placebo", "credit.critic",
        "credit.token_baseline", "credit.distillation",
    ),
}  # fmt: skip
"""Heading of docs/formulas.md -> modules whose documentation holds the formulas."""


def cli() -> str:
    """Every command with its flags, as Markdown."""
    lines = ["# Command line", "", "Made by `python docs/build.py` from the program itself.", ""]
    for purpose, commands in GROUPS.items():
        lines += [f"**{purpose.capitalize()}**", ""]
        lines += [f"- [`{name}`](#grposcope-{name}): {line}" for name, line in commands.items()] + [""]
    for name, command in _commands(parser()).items():
        lines += [f"## grposcope {name}", "", command.description or "", ""]
        for group in command._action_groups:
            flags = [a for a in group._group_actions if a.option_strings and a.dest != "help"]
            if flags:
                lines += [f"### {group.title}", "", "| flag | meaning |", "|---|---|", *map(_flag, flags), ""]
        if command.epilog:
            lines += ["```", command.epilog.rstrip(), "```", ""]
    return "\n".join(lines)


def api() -> str:
    """Every public name of every module with the first line of its documentation."""
    lines = [
        "# Python API",
        "",
        "Made by `python docs/build.py` from the docstrings; `help(name)` shows more.",
        "",
    ]
    for module in modules():
        lines += [f"## {module.__name__}", "", _first(module), ""]
        lines += [f"- `{signature(value)}`: {_first(value)}" for value in public(module)]
        lines += [""] if public(module) else []
    return "\n".join(lines)


def formulas() -> str:
    """The formulas with their derivations and sources, as the modules that compute them state them."""
    lines = [
        "# The formulas",
        "",
        "Made by `python docs/build.py`: what the modules that compute them say. [Glossary](glossary.md) of symbols.",
        "",
    ]
    for heading, names in FORMULAS.items():
        lines += [f"## {heading}", ""]
        further = _of_sources() if "credit.steps" in names else []
        for name in (*names, *(name for name in further if name not in names)):
            module = importlib.import_module(f"grposcope.{name}")
            lines += [f"### {name}", "", inspect.getdoc(module) or "", ""]
    return "\n".join(lines)


def _of_sources() -> list[str]:
    """Modules of the sources of credit, in the order of their table."""
    modules = dict.fromkeys(source.assign.__module__ for source in SOURCES.values())
    return [name.removeprefix("grposcope.") for name in modules if name != "grposcope.credit"]


def checks() -> str:
    """Every check of `grposcope lint`, as Markdown."""
    titles = {dialect.name: dialect.title for dialect in reversed(DIALECTS)}
    lines = [
        "# What lint checks",
        "",
        "Made by `python docs/build.py` from the table of checks. [How to use it](howto/before-a-run.md).",
        "",
        "| check | looks for | reads | grades | source |",
        "|---|---|---|---|---|",
    ]
    for check in CHECKS:
        trainers = ", ".join(titles[name] for name in check.trainers)
        cells = (check.name, check.finds, trainers, ", ".join(check.grades), check.source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def readers() -> str:
    """docs/readers.md with its tables of keys made anew; what is around them is written by hand."""
    page = (HERE / "readers.md").read_text()
    for heading, metrics in {"As in our own record": METRICS, "Logged by others only": LOGGED}.items():
        lines = "\n".join(["", *_keys(metrics), ""])
        page = re.sub(rf"(?<=^### {heading}\n)\n(?:\|.*\n)+", lambda found, lines=lines: lines, page, flags=re.M)
    return page


def _keys(metrics: Mapping[str, Metric]) -> list[str]:
    """A table of metrics and the keys under which trainers log them; of our own record those that others log too."""
    trainers = [trainer for trainer in TRAINERS.values() if trainer.keys]
    lines = [f"| name | definition | {' | '.join(trainer.title for trainer in trainers)} |"]
    lines.append("|---" * (2 + len(trainers)) + "|")
    for name, metric in metrics.items():
        keys = [", ".join(f"`{key}`" for key in trainer.keys.get(name, ())) for trainer in trainers]
        if any(keys) or metrics is LOGGED:
            lines.append("| " + " | ".join([f"`{name}`", metric.definition, *keys]) + " |")
    return lines


def modules() -> list[ModuleType]:
    """The package and all its public modules, in order."""
    found = [grposcope]
    for info in pkgutil.walk_packages(grposcope.__path__, "grposcope."):
        if not info.name.rsplit(".", 1)[-1].startswith("_"):
            found.append(importlib.import_module(info.name))
    return found


def public(module: ModuleType) -> list[object]:
    """Functions and classes that a module defines and does not hide."""
    return [
        value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def signature(value: object) -> str:
    """A name with its parameters; exceptions, mappings and protocols have none worth showing."""
    name = getattr(value, "__name__", "?")
    if inspect.isclass(value) and (issubclass(value, Exception | dict) or getattr(value, "_is_protocol", False)):
        return name
    parameters = [p.name for p in inspect.signature(value).parameters.values()]  # type: ignore[arg-type]
    return f"{name}({', '.join(parameters)})"


def _commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def _flag(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or '{' + ','.join(map(str, action.choices or ())) + '}'}"
    text = (action.help or "").replace("|", "\\|")
    return f"| `{', '.join(action.option_strings)}{value}` | {text} |"


def _first(value: object) -> str:
    return (inspect.getdoc(value) or "").strip().split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    (HERE / "cli.md").write_text(cli())
    (HERE / "api.md").write_text(api())
    (HERE / "checks.md").write_text(checks())
    (HERE / "formulas.md").write_text(formulas())
    (HERE / "readers.md").write_text(readers())
