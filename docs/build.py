"""Write cli.md, api.md, checks.md, faults.md, questions.md and the tables in readers.md, verify.md and diagnosis.md
from the code; a test compares them.

python docs/build.py
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name

from grposcope.cli import parser
from grposcope.commands import PURPOSES, known
from grposcope.core.metrics import LOGGED, METRICS, Metric
from grposcope.faults import catalogue, pages
from grposcope.instruments.lint.dialects import DIALECTS
from grposcope.logs.trainers import DEFECTS, TRAINERS
from grposcope.logs.trainers.held_version import HELD
from grposcope.signs import words

HERE = Path(__file__).parent

PROMISED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "grposcope": ("", {
        "read": '>>> run = read("docs/example.jsonl")\n>>> run.meta.engine, run.steps\n(\'verl\', 200)',
        "Run": '>>> float(run.table["reward"][-1].round(1))\n0.9\n>>> run.setting("kl") is None  # not logged\nTrue',
        "diagnose": ">>> worst = diagnose(run)[0]\n>>> worst.fault, worst.grade\n"
                    "('reward hacking', 'failing')\n"
                    ">>> worst.onset, (worst.since.low, worst.since.high)  # a tenth of its fall is made at step 92\n"
                    "(100, (60, 140))",
        "Finding": ">>> worst.because[:29]\n'held-out val-core/gsm8k/acc/m'",
        "lint": 'lint("train.py").grade  # the worst of all findings; nothing in the file is run',
        "explain": '>>> explain("reward hacking").sentence\n'
                   "'The training reward rises while a score that it stands for falls, or does not follow.'",
        "report": 'report(run, "run.html")  # or report([run, other], "both.html")',
        "verify": ">>> rows = [{'group': g, 'reward': r, 'advantage': r - g / 2} for g in (1, 2) for r in (0, g)]\n"
                  ">>> verify(rows, {'scale_rewards': 'none'}).word\n'healthy'",
        "Estimate": ">>> print(Estimate.mean([0.2, 0.3, 0.4]))\n0.3 ± 0.058 (n=3)",
        "Answer": '>>> Answer("mine", "Is it enough?", "healthy", "Yes.", because="3 of 3 passed").paragraphs\n'
                  "('Yes.', 'Because 3 of 3 passed.')",
        "UserError": '>>> try:\n...     read("missing.jsonl")\n... except UserError as error:\n...     '
                     'print("missing.jsonl" in str(error))\nTrue',
    }),
    "grposcope.runs": ("grposcope.logs", {
        "read": '>>> read("docs/example.jsonl", {"group": 8}).setting("group")\n8',
        "Hints": '>>> read("docs/example.jsonl", Hints(columns={"kl": "actor/kl_loss"})).keys["kl"]\n\'actor/kl_loss\'',
        "Run": "the class that `grposcope.Run` is",
        "RunWriter": 'record = RunWriter.create(Path("runs/mine"), config)  # a folder that every command reads\n'
                     'record.step({"step": 1, "reward": 0.3})',
    }),
    "grposcope.diagnosis": ("grposcope.instruments.diagnosis", {
        "diagnose": '>>> from grposcope import read\n>>> [found.fault for found in diagnose(read("docs/example.jsonl"))'
                    ' if found.status == "present"][0]\n\'reward hacking\'',
        "Finding": "the class that `grposcope.Finding` is",
    }),
    "grposcope.objectives": ("grposcope.lab.objectives", {
        "Objective": ">>> from dataclasses import replace\n>>> replace(recipes.GRPO, kl=0.01).kl\n0.01",
        "recipes.ALL": ">>> sorted(recipes.ALL)[:4]\n['asymre', 'batch_grpo', 'cispo', 'dapo']",
        "recipes.with_advantage": '>>> recipes.with_advantage(recipes.GRPO, "leave_one_out").name\n'
                                  "'grpo, leave_one_out advantage'",
        "advantages.ALL": ">>> list(advantages.ALL)[:4]\n['none', 'centered', 'leave_one_out', 'standardized']",
        "advantages.none": ">>> import torch\n>>> rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])\n"
                           ">>> advantages.none(rewards).tolist()\n[[1.0, 0.0, 0.0, 0.0]]",
        "advantages.centered": ">>> advantages.centered(rewards).tolist()\n[[0.75, -0.25, -0.25, -0.25]]",
        "advantages.leave_one_out": ">>> [round(a, 2) for a in advantages.leave_one_out(rewards)[0].tolist()]\n"
                                    "[1.0, -0.33, -0.33, -0.33]",
        "advantages.standardized": ">>> [round(a, 2) for a in advantages.standardized(rewards)[0].tolist()]\n"
                                   "[1.5, -0.5, -0.5, -0.5]",
        "advantages.dead": ">>> advantages.dead(torch.tensor([[1.0, 1.0], [1.0, 0.0]])).tolist()\n[True, False]",
    }),
    "grposcope.geometry": ("grposcope.instruments.gradient", {
        "probe.probe": "measured = probe.probe(model, rollouts, recipes.GRPO)  # a lab.rollout_batch.RolloutBatch",
        "probe.Probe": 'measured.ranks("grpo"), measured.baseline(), measured.token_sparsity()',
        "spectrum.ranks": '>>> round(spectrum.ranks([3.0, 1.0])["stable"], 3)  # 10/9\n1.111',
        "spectrum.exact": '>>> import torch\n>>> round(spectrum.exact(torch.eye(3)).ranks()["participation"], 3)\n3.0',
        "spectrum.from_gram": ">>> spectrum.from_gram(torch.eye(2)).values.tolist()\n[1.0, 1.0]",
        "spectrum.Spectrum": ">>> sorted(spectrum.exact(torch.eye(2)).ranks())[:3]\n"
                             "['energy_90', 'energy_95', 'energy_99']",
    }),
    "grposcope.ustat": ("grposcope.maths.{moments,pass_at_k}, grposcope.instruments.group_size.{mse,planning,limit}", {
        "moments.from_scores": ">>> import numpy as np\n>>> draw = np.random.default_rng(0)\n"
                               ">>> rewards = (draw.random((40, 8)) < 0.5).astype(float)  # 40 prompts, 8 rollouts\n"
                               ">>> scores = draw.normal(size=(40, 8, 5))  # ∇ log π of each rollout\n"
                               ">>> scores[..., 0] += rewards - 0.5\n"
                               ">>> found = moments.from_scores(scores, rewards)\n"
                               ">>> print(found.g2)  # ‖g‖²\n0.07772 ± 0.03 (n=40)",
        "moments.from_gram": ">>> flat = scores.reshape(320, 5)\n"
                             ">>> print(moments.from_gram(flat @ flat.T, rewards).g2)\n0.07772 ± 0.03 (n=40)",
        "moments.Moments": ">>> print(found.delta)  # Δ, the price of not knowing the baseline\n1.408 ± 0.081 (n=40)",
        "mse.leave_one_out": ">>> print(mse.leave_one_out(found, prompts=8, group=8))\n0.02311 ± 0.0026 (n=40)",
        "mse.centered": ">>> print(mse.centered(found, 8, 8))\n0.01879 ± 0.002 (n=40)",
        "mse.oracle": ">>> print(mse.oracle(found, 8, 8))\n0.01996 ± 0.0024 (n=40)",
        "mse.reinforce": ">>> print(mse.reinforce(found, 8, 8))\n0.03348 ± 0.0039 (n=40)",
        "mse.efficiency": ">>> print(mse.efficiency(found, group=8))\n1.165 ± 0.012 (n=40)",
        "mse.budget": ">>> print(mse.budget(found, 8, 8).residual)\n0.003143 ± 0.00018 (n=40)",
        "planning.optimal_group": ">>> plan = planning.optimal_group(found)\n"
                                  ">>> plan.decided, plan.at_least\n(False, 5)",
        "planning.Plan": ">>> [round(end, 1) for end in plan.interval]\n[4.7, inf]",
        "limit.noise": ">>> noise = limit.noise(np.zeros((2, 2)), np.eye(2), np.eye(2), prompts=8, group=8)\n"
                       ">>> noise.round(4).tolist()\n[[0.0179, 0.0], [0.0, 0.0179]]",
        "limit.covariance": ">>> spread = limit.covariance(np.eye(2), noise, step=1.0)\n"
                            ">>> spread.round(4).tolist()\n[[0.0179, 0.0], [0.0, 0.0179]]",
        "limit.weights": ">>> limit.weights(np.eye(2), spread).round(4).tolist()\n[0.0179, 0.0179]",
        "limit.quantile": ">>> round(limit.quantile(0.95, limit.weights(np.eye(2), spread)), 3)\n0.107",
        "pass_at_k.pass_at_k": ">>> round(pass_at_k.pass_at_k(n=10, correct=3, k=5), 4)\n0.9167",
    }),
    "grposcope.dynamics": (
        "grposcope.instruments.dynamics", {
        "oscillator.Oscillator": ">>> reward = oscillator.Oscillator.from_optimizer(0.1, 0.9, curvature=0.5)\n"
                                 ">>> reward.regime, round(reward.period, 1)\n('oscillatory', 28.1)",
        "refresh.threshold": ">>> refresh.threshold(lr=0.1, momentum=0.9, curvature=0.5)\n5.0",
        "refresh.onset": ">>> refresh.onset(0.1, 0.9, 0.5)\n1.0",
        "refresh.spectral_radius": ">>> round(float(refresh.spectral_radius(0.1, 0.9, 0.5, interval=4)), 3)\n0.944",
        "refresh.margin": ">>> refresh.margin(0.1, 0.9, 0.5, interval=4).stable\nTrue",
        "sampled_refresh.threshold": ">>> sampled_refresh.threshold(0.1, 0.9, 0.5, variation=0.0)\n5.0",
        "noise.stationary_variance": ">>> round(noise.stationary_variance(0.1, 0.9, 0.5, interval=1, "
                                     "noise_variance=0.01), 4)\n0.0101",
        "noise.autocovariance": ">>> noise.autocovariance(0.1, 0.9, 0.5, 1, 0.01, lags=2).round(4).tolist()\n"
                                "[0.0101, 0.0099, 0.0091]",
        "noise.power_spectrum": ">>> noise.power_spectrum([0.1], 0.1, 0.9, 0.5, 1, 0.01).round(5).tolist()\n[0.00099]",
        "fit.fit": ">>> import numpy as np\n>>> steps = np.arange(200)\n"
                   ">>> rewards = 0.8 - 0.6 * np.exp(-steps / 40) + np.random.default_rng(0).normal(0, 0.01, 200)\n"
                   '>>> fitted = fit.fit(steps, rewards, "exponential")\n'
                   '>>> round(fitted.parameters["plateau"].value, 2)\n0.8',
        "fit.Fit": ">>> round(fitted.reaches(0.95), -1)  # the step of 95 % of the way\n120.0",
        "fit.noise_ceiling": ">>> round(fit.noise_ceiling(steps, rewards).value, 1)\n1.0",
        "fit.forecast": ">>> ahead = fit.forecast(steps, rewards, horizon=50)\n>>> round(ahead.level.value, 2)\n0.8",
        "fit.Forecast": ">>> ahead.verdict\n'cannot tell'",
        "bandit.Bandit": ">>> arms = bandit.Bandit([1.0, 0.0])\n"
                         ">>> run = arms.simulate(lr=0.5, momentum=0.0, interval=1, group=None, steps=100)\n"
                         ">>> round(float(run.value[0, -1]), 2)\n0.99",
    }),
    "grposcope.tasks": ("grposcope.lab.tasks", {
        "Task": ">>> class Echo(Task):\n...     name = \"echo\"\n...     def problems(self, split):\n"
                "...         return (Problem(\"1\", \"Say yes.\", \"yes\"),)\n"
                "...     def reward(self, problem, completion):\n"
                "...         return float(problem.answer in completion)",
        "Problem": ">>> Problem(\"1\", \"Say yes.\", \"yes\").answer\n'yes'",
        "Step": ">>> Step(start=0, end=4, correct=True).correct\nTrue",
        "grade": ">>> grade(Echo(), Echo().problems(\"train\"), [\"yes!\"])\n[1.0]",
        "load": '>>> load("arithmetic:steps=2").labels_steps\nTrue',
    }),
    "grposcope.training": ("grposcope.lab.train", {
        "config.TrainConfig": '>>> config.TrainConfig(recipe="rloo", group=16).group\n16',
        "loop.train": 'result = loop.train(config.TrainConfig(steps=100, out="runs/mine"))\nresult.heldout["last"]',
        "loop.resume": 'loop.resume("runs/mine")',
    }),
    "grposcope.engines.trl": ("grposcope.engines.trl", {
        "GRPOscopeCallback": 'GRPOTrainer(..., callbacks=[GRPOscopeCallback(stop_on=("failing",))])',
        "GRPOscopeTrainer": 'GRPOscopeTrainer(..., probe_every=10, credit="prefix")',
        "GRPOscopeMixin": "class Mine(GRPOscopeMixin, RLOOTrainer): ...",
        "guarded": 'GRPOTrainer(..., reward_funcs=guarded(reward, seconds=60, errors="zero"))',
    }),
}  # fmt: skip
"""Promised package -> where it lives (for type checkers and editors) and its promised names with an example each; one
that starts with >>> is run by a test."""

SAID = {
    "grposcope.objectives.recipes.ALL": "Every published method by its name on the command line.",
    "grposcope.objectives.advantages.ALL": "Every advantage by its name on the command line, with what it needs.",
}
"""A sentence for promised names that are no function and no class."""


def cli() -> str:
    """Every command with its flags, as Markdown."""
    lines = ["# Command line", "", "Made by `python docs/build.py` from the program itself.", ""]
    for purpose in PURPOSES:
        lines += [f"**{purpose.capitalize()}**", ""]
        commands = [command for command, _ in known().values() if command.purpose == purpose]
        lines += [f"- [`{one.name}`](#grposcope-{one.name}): {one.help}" for one in commands] + [""]
    for name, command in _commands(parser()).items():
        lines += [f"## grposcope {name}", "", command.description or "", ""]
        for group in command._action_groups:
            flags = [
                a for a in group._group_actions if a.option_strings and a.help != argparse.SUPPRESS and a.dest != "help"
            ]
            if flags:
                lines += [f"### {group.title}", "", "| flag | meaning |", "|---|---|", *map(_flag, flags), ""]
        if command.epilog:
            lines += ["```", command.epilog.rstrip(), "```", ""]
    return "\n".join(lines)


def api() -> str:
    """The promised names with signature, sentence and example; everything else is internal."""
    count = sum(len(names) for _, names in PROMISED.values())
    lines = [
        "# Python API",
        "",
        f"Made by `python docs/build.py`. These {count} names are promised: they stay, or an alias does.",
        "Everything else is internal and may change; `help(name)` shows it. Type checkers and editors follow the",
        "modules behind these paths, named below each heading. A test runs the examples with `>>>`.",
        "",
    ]
    for package, (place, names) in PROMISED.items():
        heads = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
        lines += [f"## {package}", ""]
        lines += [f"Lives in `{place}`.", ""] if place and place != package else []
        lines += ["```python", f"from {package} import {heads}", "```", ""]
        for name, example in names.items():
            value = resolve_name(f"{package}.{name}")
            said = SAID.get(f"{package}.{name}") or _first(value)
            if example.startswith("the class that"):
                lines += [f"**`{name}`**: {example}.", ""]
            else:
                lines += [f"**`{signature(name, value)}`**: {said}", "", "```python", example, "```", ""]
    return "\n".join(lines)


def faults() -> str:
    """The catalogue: the page of every fault with its picture, by family."""
    lines = [
        "# Faults",
        "",
        "Made by `python docs/build.py` from the files of `faults/`, one for each; `grposcope explain FAULT` prints",
        "the same. Pictures are simulated runs (`docs/failures.py`) on which `grposcope diagnose` names the fault;",
        "dashed: the onset. [How a verdict comes about](diagnosis.md), [questions](questions.md).",
        "",
    ]
    for family, members in catalogue.by_family().items():
        lines += [f"## {family.capitalize()}", ""]
        for fault in members:
            picture = f"pictures/failures/{fault.name.replace(' ', '-')}.svg"
            heading, rest = pages.markdown(fault).split("\n\n", 1)
            lines += [heading, "", *([f"![{fault.name}]({picture})", ""] if (HERE / picture).exists() else []), rest]
    return "\n".join(lines)


def verify() -> str:
    """docs/verify.md with its table of claims made anew: what each needs, and the faults that break it."""
    lines = ["| claim | broken by | needs |", "|---|---|---|"]
    for proof in catalogue.proofs():
        names = [name for name, fault in catalogue.faults().items() if proof in fault.rollouts]
        links = ", ".join(f"[{name}](faults.md#{name.replace(' ', '-')})" for name in names)
        lines.append(f"| {proof.claim} | {links} | {proof.needs} |")
    head, _, rest = (HERE / "verify.md").read_text().partition("<!-- claims -->")
    return f"{head}<!-- claims -->\n" + "\n".join(lines) + "\n<!-- /claims -->" + rest.partition("<!-- /claims -->")[2]


def questions() -> str:
    """Frequent questions, from the sections "Asked as" of the faults that answer them."""
    lines = [
        "# Frequent questions",
        "",
        "Made by `python docs/build.py` from the files of `faults/`: what people ask in the trackers of TRL, verl and",
        "others. `LOG` is the log of your run, of [any trainer](readers.md).",
        "",
    ]
    for fault in catalogue.faults().values():
        read = pages.page(fault)
        for question in read.asked:
            lines += [
                f"## {question}", "", read.sections[pages.IS], "", f"**How it shows.** {read.sections[pages.SHOWS]}",
                "", f"**What to do.** {read.sections[pages.DO]}", "",
                f"**What decides.** {read.sections[pages.DECIDES]} More: [{fault.name}]"
                f"(faults.md#{fault.name.replace(' ', '-')}).", "",
            ]  # fmt: skip
    return "\n".join(lines)


def checks() -> str:
    """Every check of `grposcope lint`, as Markdown."""
    titles = {dialect.name: dialect.title for dialect in reversed(DIALECTS)}
    lines = [
        "# What lint checks",
        "",
        "Made by `python docs/build.py` from the catalogue of faults. [How to use it](howto/before-a-run.md).",
        "",
        "| fault | looks for | reads | grades | source |",
        "|---|---|---|---|---|",
    ]
    for check in catalogue.settings_checks():
        faults = [name for name, fault in catalogue.faults().items() if fault.settings is check]
        trainers = ", ".join(titles[name] for name in (*check.trainers, *check.scripts))
        source = check.source or pages.page(catalogue.faults()[check.fault]).source
        cells = (", ".join(faults), check.finds, trainers, ", ".join(check.grades), source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def readers() -> str:
    """docs/readers.md with its tables of keys made anew; what is around them is written by hand."""
    page = (HERE / "readers.md").read_text()
    for heading, table in READERS.items():
        lines = "\n".join(["", *table(), ""])
        page = re.sub(_table(heading), lambda _, lines=lines: lines, page, flags=re.M)
    return page


def _table(heading: str) -> str:
    """Pattern of the table below a heading of the third level."""
    return rf"(?<=^### {heading}\n)\n(?:\|.*\n)+"


def words_by_hand() -> dict[str, int]:
    """Words of each page that people write: all but the pages and tables that are made of code."""
    made = {HERE / f"{name}.md" for name in ("cli", "api", "checks", "faults", "questions")}
    pages = [HERE.parent / "README.md", HERE.parent / "CONTRIBUTING.md", *sorted(HERE.rglob("*.md"))]
    texts = {page: page.read_text() for page in pages if page not in made}
    for name in ("verify", "diagnosis"):
        texts[HERE / f"{name}.md"] = re.sub(r"<!-- (\w+) -->.*<!-- /\1 -->", "", texts[HERE / f"{name}.md"], flags=re.S)
    for heading in READERS:
        texts[HERE / "readers.md"] = re.sub(_table(heading), "", texts[HERE / "readers.md"], flags=re.M)
    return {str(page.relative_to(HERE.parent)): len(text.split()) for page, text in texts.items()}


def _defects() -> list[str]:
    """A table of the metrics that an engine logs wrongly."""
    lines = ["| engine | key | versions | what it is instead | known from | what is done |", "|---" * 6 + "|"]
    for one in DEFECTS:
        done = "left out" if one.left_out else "a note"
        keys = ", ".join(f"`{key}`" for key in one.keys)
        lines.append(f"| {one.engine} | {keys} | {one.versions} | {one.what} | {one.thread} | {done} |")
    return lines


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


READERS = {
    "As in our own record": lambda: _keys(METRICS),
    "Logged by others only": lambda: _keys(LOGGED),
    "By engine and version": _defects,
    "Which source": lambda: [
        "| trainer | package | held on | |",
        "|---|---|---|---|",
        *(f"| {TRAINERS[one.trainer].title} | {one.package} {one.version} | {one.when} | {one.note} |" for one in HELD),
    ],
}
"""Heading in docs/readers.md -> the lines of the table below it."""


def diagnosis() -> str:
    """diagnosis.md with the table of words as it stands in the code."""
    text = (HERE / "diagnosis.md").read_text()
    head, rest = text.split("<!-- words -->\n")
    return f"{head}<!-- words -->\n{words.markdown()}\n<!-- /words -->{rest.partition('<!-- /words -->')[2]}"


def signature(name: str, value: object) -> str:
    """A name with its parameters; mappings, errors and what has more than eight have none worth showing."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return name
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(value).parameters.values()]
    plain = (str, int, float, type(None))
    shown = ", ".join(
        str(p) if p.default is p.empty or isinstance(p.default, plain) else f"{p.name}=…" for p in parameters
    )
    return f"{name}({shown if len(parameters) <= 8 else '…'})"


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
    (HERE / "faults.md").write_text(faults())
    (HERE / "questions.md").write_text(questions())
    (HERE / "readers.md").write_text(readers())
    (HERE / "verify.md").write_text(verify())
    (HERE / "diagnosis.md").write_text(diagnosis())
    print(f"{sum(words_by_hand().values()):,} words written by hand")
