"""`grposcope evaluate`: pass@k of models on tasks, with intervals, and their differences on the same problems."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grposcope.commands import flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag
from grposcope.core.text import visible
from grposcope.instruments.evaluation.record import BATCH, SPLITS, EvaluationPlan, EvaluationView

if TYPE_CHECKING:
    from collections.abc import Callable

    from grposcope.instruments.evaluation.evaluate_models import FoundTask
    from grposcope.lab.policies import Policy

DESCRIPTION = (
    "Evaluate models on held-out problems: pass@1 and pass@k with 95% intervals, completions cut "
    "off, answers that cannot be read, and differences on the same problems. The same command "
    "continues where it was stopped."
)
EXAMPLES = """\
examples:
  grposcope evaluate tiny --task arithmetic --limit 100
  grposcope evaluate tiny runs/mine --task arithmetic arithmetic:steps=4 --samples 8 --k 1,8
  grposcope evaluate Qwen/Qwen2.5-0.5B-Instruct --task gsm8k benchmarks:aime24.jsonl benchmarks:math-ai/amc23
  grposcope evaluate tiny --arm trained=runs/s0,runs/s1,runs/s2 --task arithmetic     seeds of one training
  grposcope evaluate runs/mine --task jsonl:mine.jsonl --split all --inspect log.json
"""


_what = partial(flag, group="what")
_drawing = partial(flag, group="drawing")
_machine = partial(flag, group="machine")


@dataclass(frozen=True)
class Flags:
    """Flags of `grposcope evaluate`."""

    models: list[str] = _what(
        names=(),
        nargs="*",
        metavar="MODEL",
        help="tiny, smollm2, a model folder, the folder of a run or of its checkpoint, or a hub name; "
        "several are compared in pairs",
    )
    arm: list[str] = _what(
        default=[],
        action="append",
        metavar="NAME=MODEL,…",
        help="models of one training with several seeds; may be repeated",
    )
    task: list[str] = _what(
        default=[],
        nargs="+",
        action="extend",
        metavar="TASK",
        help="what to evaluate on: gsm8k[:PATH], benchmarks:PATH or OWNER/NAME of the hub, "
        "reasoning_gym:NAME, arithmetic, jsonl:PATH; several, and repeated",
    )
    reward: str | None = _what(metavar="TEXT", help="your own reward function, module:function (with jsonl:PATH)")
    split: str = _what(default="heldout", choices=SPLITS, help="which problems (default: heldout)")
    limit: int | None = _what(metavar="N", help="only the first N problems of each task (default: all)")
    samples: int = _drawing(default=4, metavar="N", help="completions per problem (default: 4)")
    k: str = _drawing(
        default="", metavar="TEXT", help="values of k for pass@k, such as 1,4 (default: 1 and the number of samples)"
    )
    temperature: float = _drawing(
        default=1.0,
        metavar="X",
        help="temperature of sampling; 0 takes the likeliest token, with --samples 1 (default: 1)",
    )
    max_tokens: int | None = _drawing(metavar="N", help="longest completion (default: each task's)")
    seed: int = _drawing(default=0, metavar="N", help="seed of sampling (default: 0)")
    batch: int = _drawing(
        default=BATCH, metavar="N", help=f"completions drawn at a time; changes no result (default: {BATCH})"
    )
    reward_timeout: float = _drawing(
        default=300.0, metavar="X", help="seconds that grading a batch may take, 0 for no limit (default: 300)"
    )
    out: Path | None = _machine(
        metavar="FOLDER",
        help="folder of the evaluation, new or to continue (default: evaluations/… named by what is evaluated)",
    )
    inspect: Path | None = _machine(
        metavar="FILE",
        help="also write a log that inspect-ai opens; with several models or tasks, one numbered file for each",
    )
    dtype: str = _machine(default="float32", choices=("float32", "bfloat16"), help="number format of the weights")
    device: str = _machine(default="auto", metavar="TEXT", help="cpu, cuda or auto")
    threads: int = _machine(default=0, type=flags.threads, metavar="N", help="CPU threads, 0 for all cores")
    remote_code: bool = _machine(default=False, help="allow the model's own code from the hub to run")
    json: bool = json_flag(
        group="machine", help="print only the JSON document, with every score, difference and interval"
    )


def check_flags(arguments: argparse.Namespace) -> None:
    """UserError for flags that cannot work with any model or task."""
    _ks(arguments)
    _check(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Draw what is missing, then print the table and write the page."""
    ks = _ks(arguments)
    models, arms = _models(arguments)
    for line in _graded_otherwise(arguments, models):
        print(line, file=sys.stderr)
    plan, tasks = _plan(arguments, models)
    out = arguments.out or Path("evaluations") / _name(plan)
    _draw(arguments, out, plan, tasks, EvaluationView(ks, arms), models)
    return _show(arguments, out)


def _show(arguments: argparse.Namespace, out: Path) -> int:
    """Print what the folder says, and write its page and logs."""
    from grposcope.commands.report import write_page
    from grposcope.instruments.evaluation import answer, inspect_log
    from grposcope.instruments.evaluation import record as evaluation
    from grposcope.render import terminal
    from grposcope.render.document import of_answer

    record = evaluation.read(out)
    content = answer.document(record)
    say(arguments, terminal.text(content.top))
    path = out / "page.html"
    size = write_page(content, path, "--out")
    say(arguments, f"\npage: {path} ({size / 1e6:.1f} MB); open it in a browser")
    document: dict[str, Any] = {"out": str(out), **of_answer(content.top), "page": str(path)}
    if arguments.inspect:
        logs = inspect_log.write(record, arguments.inspect)
        say(arguments, f"inspect-ai: {', '.join(map(str, logs))}; inspect view --log-dir {logs[0].parent}")
        document["inspect"] = [str(log) for log in logs]
    finish(arguments, document)
    return 0


def _ks(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The numbers of --k, in order."""
    try:
        ks = tuple(sorted({int(word) for word in arguments.k.split(",")})) if arguments.k else ()
    except ValueError:
        raise UserError(f"--k {arguments.k}: write whole numbers such as 1,4") from None
    if ks and ks[0] < 1:
        raise UserError(f"--k {arguments.k}: k must be at least 1")
    if ks and ks[-1] > arguments.samples:
        raise UserError(
            f"--k {ks[-1]} is more than --samples {arguments.samples}: pass@{ks[-1]} needs {ks[-1]} completions of "
            "each problem; raise --samples, or lower --k"
        )
    return ks


def _check(arguments: argparse.Namespace) -> None:
    """UserError for numbers that cannot be."""
    for name, least in (("samples", 1), ("limit", 1), ("max_tokens", 1), ("batch", 1), ("temperature", 0)):
        value = getattr(arguments, name)
        if value is not None and not least <= value < float("inf"):
            raise UserError(f"--{name.replace('_', '-')} {value} must be {least} or more")
    if arguments.temperature == 0 and arguments.samples > 1:
        raise UserError("--temperature 0 writes the same completion each time; use --samples 1, or a temperature")
    if not arguments.task:
        raise UserError("--task is missing: name what to evaluate on, such as arithmetic or gsm8k:FOLDER")


def _models(arguments: argparse.Namespace) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Every model once, checked as far as that is quick, and the arms that they make."""
    from grposcope.commands import probe_model
    from grposcope.lab import policies

    arms: dict[str, tuple[str, ...]] = {name: (name,) for name in arguments.models}
    if len(arms) < len(arguments.models):
        raise UserError("a model is given twice; give different models")
    for text in arguments.arm:
        name, equals, listed = text.partition("=")
        members = tuple(word.strip() for word in listed.split(",") if word.strip())
        if not equals or not name or not members or len(set(members)) < len(members):
            raise UserError(f"--arm {text}: write NAME=MODEL,MODEL,… with a different model for each seed")
        if name in arms:
            raise UserError(f"--arm {name}: this name is taken; choose another")
        arms[name] = members
    if not arms:
        raise UserError("name a model: tiny, smollm2, a model folder, the folder of a run, or a hub name")
    models = {}
    for given in dict.fromkeys(model for members in arms.values() for model in members):
        source = probe_model.find(given).model
        policies.check(source)
        models[given] = source
    return models, arms


def _graded_otherwise(arguments: argparse.Namespace, models: Collection[str]) -> list[str]:
    """A line for each folder of a run that was trained with a reward of its own, where --reward names none."""
    from grposcope.logs.native.schema import is_record, read_config

    runs = [model for model in models if arguments.reward is None and is_record(Path(model))]
    rewards = {run: read_config(Path(run)).settings.get("reward") for run in runs}
    return [
        f"note: {visible(run, 100)} was trained with the reward {visible(str(reward), 100)}, and is graded by the "
        f"task's own here; --reward {visible(str(reward), 100)} grades by that"
        for run, reward in rewards.items()
        if reward
    ]


def _plan(arguments: argparse.Namespace, models: Collection[str]) -> tuple[EvaluationPlan, dict[str, FoundTask]]:
    """What to evaluate, and the problems of each task."""
    from grposcope.instruments.evaluation.evaluate_models import find_task
    from grposcope.lab import tasks as known

    names = tuple(dict.fromkeys(arguments.task))
    plan = EvaluationPlan(
        models=tuple(models),
        tasks=names,
        samples=arguments.samples,
        temperature=arguments.temperature,
        max_tokens=arguments.max_tokens,
        limit=arguments.limit,
        split=arguments.split,
        seed=arguments.seed,
        dtype=arguments.dtype,
        reward=arguments.reward,
    )
    takers = [name for name in names if getattr(known.TASKS.get(name.partition(":")[0]), "takes_reward", False)]
    if arguments.reward and not takers:
        known.load(names[0], arguments.reward)  # says which tasks take one
    tasks = {name: find_task(known.load(name, arguments.reward if name in takers else None), plan) for name in names}
    return plan, tasks


def _name(plan: EvaluationPlan) -> str:
    """A folder name that depends on everything in the plan, so that the same command goes on."""
    import hashlib
    import re

    from grposcope.core.files import dumps
    from grposcope.instruments.evaluation.scores import labels

    first = re.sub(r"[^\w.-]+", "-", labels(plan.models)[0])[:40]
    more = f"-and-{len(plan.models) - 1}" if len(plan.models) > 1 else ""
    return f"{first}{more}-{hashlib.sha256(dumps(plan).encode()).hexdigest()[:8]}"


def _draw(
    arguments: argparse.Namespace,
    out: Path,
    plan: EvaluationPlan,
    tasks: dict[str, FoundTask],
    view: EvaluationView,
    sources: dict[str, str],
) -> None:
    """Evaluate what is missing, with a bar over the problems."""
    import torch
    from transformers.utils import logging

    from grposcope.instruments.evaluation import evaluate_models
    from grposcope.lab import policies

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = policies.device(arguments.device)

    def load(model: str) -> Policy:
        return policies.load(sources[model], getattr(torch, plan.dtype), device, arguments.remote_code)

    total = len(plan.models) * sum(len(task.problems) for task in tasks.values())
    with _bar(total) as progress:
        evaluate_models.draw(out, plan, tasks, load, view, arguments.batch, arguments.reward_timeout, progress)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, str, int], None]]:
    """A bar over all problems of all models on standard error."""
    from tqdm import tqdm

    with tqdm(total=total, unit="problem", dynamic_ncols=True, mininterval=0.5, file=sys.stderr) as bar:

        def progress(model: str, task: str, problems: int) -> None:
            bar.set_postfix_str(f"{model} · {task}"[:60], refresh=False)
            bar.update(problems)

        yield progress
