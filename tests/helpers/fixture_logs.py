"""Every log that the repository has or writes for its tests, each with the log as `raw_log` reads it.

Left out are the forms that plain Python cannot read in a few lines: TensorBoard, W&B and console files, notebooks, and
rollouts; what is read of them is tested where they are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import engine_logs as engines
import mismatch_logs as mismatch
import numpy as np
import trap_logs
from made_logs import Made
from places import ROOT
from raw_log import read_raw

FIXTURES = ROOT / "tests" / "fixtures"

NOT_PLAIN = ("two tables in a notebook", "two runs side by side in a CSV", "environments in rows",
             "several events a step, the reward nested", "columns that measure nothing")  # fmt: skip
"""Traps that are no table of one run, or whose rows are nested."""

Keys = Mapping[str, str]

ENGINES: Mapping[str, tuple[Callable[[int], Any], str, Keys, Keys]] = {
    "verl": (engines.verl, "training/global_step",
             {"reward": "critic/score/mean", "entropy": "actor/entropy", "length": "response_length/mean",
              "grad_norm": "actor/grad_norm", "truncated": "response_length/clip_ratio"},
             {"val-core/aime/reward/mean@8": "val-core/aime/reward/mean@8"}),
    "skyrl": (engines.skyrl, "trainer/global_step",
              {"reward": "reward/avg_raw_reward", "entropy": "policy/policy_entropy",
               "grad_norm": "policy/raw_grad_norm", "length": "generate/avg_num_tokens"},
              {"all/avg_score": "eval/all/avg_score", "aime/avg_score": "eval/aime/avg_score"}),
    "nemo-rl": (engines.nemo, "step", {"reward": "train/reward", "entropy": "train/approx_entropy",
                "grad_norm": "train/grad_norm", "length": "train/mean_gen_tokens_per_sample"},
                {"accuracy": "validation/accuracy"}),
    "verifiers": (engines.verifiers, "step", {"reward": "reward", "grad_norm": "grad_norm", "entropy": "entropy",
                  "correct_answer": "reward/correct_answer", "format": "reward/format"}, {}),
    "art": (engines.art, "training_step", {"reward": "reward/mean", "grad_norm": "loss/grad_norm",
            "entropy": "loss/entropy", "kl": "loss/kl_div", "correct": "reward/correct"}, {"reward": "val/reward"}),
}  # fmt: skip
"""Engine -> a row or rows of a step, the key of the step, the keys of its metrics, and those of its evaluations."""


def logs(folder: Path) -> Iterator[Made]:
    """Every log; those that are written go to the folder."""
    yield from _kept()
    yield from _records()
    yield from _of_engines(folder)
    yield from _tinker(folder)
    yield from _traps(folder)
    yield from _mismatches(folder)


def _kept() -> Iterator[Made]:
    """Logs that stand in the repository."""
    scored = "val-core/gsm8k/acc/mean@1"
    example = ROOT / "docs" / "example.jsonl"
    keys = {"reward": "critic/score/mean", "entropy": "actor/entropy", "length": "response_length/mean",
            "grad_norm": "actor/grad_norm", "truncated": "response_length/clip_ratio",
            "kl": "actor/kl_loss"}  # fmt: skip

    def verl(row: dict[str, Any]) -> dict[str, Any]:
        return {"step": row.get("step"), **row.get("data", row)}

    yield Made("docs/example.jsonl", example, read_raw(example, "step", keys, {scored: scored}, flat=verl))
    swift = FIXTURES / "ms_swift" / "logging.jsonl"

    def numbered(row: dict[str, Any]) -> dict[str, Any]:
        done = str(row.get("global_step/max_steps", "")).partition("/")[0]
        train = {key: value for key, value in row.items() if not key.startswith("eval_")}
        return {**(row if "eval_loss" in row else train), "at": done}

    parts = {name: f"rewards/{name}/mean" for name in ("Digits", "Letters")}
    keys = {"reward": "reward", "truncated": "completions/clipped_ratio", "length": "completions/mean_length",
            "dead_fraction": "frac_reward_zero_std", "grad_norm": "grad_norm", "kl": "kl", **parts}  # fmt: skip
    yield Made("ms_swift", swift, read_raw(swift, "at", keys, {"reward": "eval_reward"}, flat=numbered))
    art = FIXTURES / "art" / "history.jsonl"
    yield Made("art", art, read_raw(art, "training_step", {"reward": "reward/mean"}, {"reward": "val/reward"}))


def _records() -> Iterator[Made]:
    """Records of our own, whose evaluations stand in a file of their own."""
    for name in ("record_format2", "record_optimal"):
        folder = FIXTURES / name
        names = {key: key for key in ("reward", "entropy", "length", "truncated", "dead_fraction", "grad_norm")}
        raw = read_raw(folder / "steps.jsonl", "step", names)
        rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        scores = [(int(row["step"]), float(row["pass@1"]["value"])) for row in rows]
        raw.columns["accuracy of the evaluations"] = scores
        raw.scored = {"accuracy": "accuracy of the evaluations"}
        yield Made(name, folder, raw)


def _of_engines(folder: Path) -> Iterator[Made]:
    """A small log of each engine whose log is JSON lines."""
    for name, (row_of, step, names, scored) in ENGINES.items():
        rows = [row for at in engines.steps() for row in _each(row_of(at))]
        path = engines.written(folder / name / "log.jsonl", rows)
        yield Made(name, path, read_raw(path, step, names, scored))


def _tinker(folder: Path) -> Iterator[Made]:
    """A log of two environments, whose groups are counted by what is mixed."""

    def with_dead(row: dict[str, Any]) -> dict[str, Any]:
        return row | {f"dead of {env}": 1 - row[f"env/{env}/by_group/frac_mixed"] for env in ("all", "math", "code")}

    path = engines.written(folder / "tinker" / "log.jsonl", map(engines.tinker, engines.steps()))
    raws = {}
    for env in ("all", "math", "code"):
        names = {"reward": f"env/{env}/reward/total", "dead_fraction": f"dead of {env}", "entropy": "optim/entropy"}
        raws[env] = read_raw(path, "step", names, {"env/all/correct": "test/env/all/correct"}, flat=with_dead)
    whole = raws.pop("all")
    whole.scopes = raws
    yield Made("tinker", path, whole)


def _each(rows: Any) -> Iterator[dict[str, Any]]:
    yield from [rows] if isinstance(rows, dict) else rows


def _traps(folder: Path) -> Iterator[Made]:
    """Logs whose form misleads."""
    names = {"reward": "reward", "entropy": "entropy", "length": "completion_length", "grad_norm": "grad_norm"}
    for place, (name, write) in enumerate(trap_logs.TRAPS.items()):
        if name not in NOT_PLAIN:
            (folder / f"trap{place}").mkdir()
            path = write(folder / f"trap{place}").path

            def apart(row: dict[str, Any]) -> dict[str, Any]:
                return row if row.get("split") != "eval" else {"step": row["step"], "eval/reward": row["reward"]}

            yield Made(name, path, read_raw(path, "step", names, {"reward": "eval/reward"}, flat=apart))


def _mismatches(folder: Path) -> Iterator[Made]:
    """Logs of every engine whose sampler differs from its trainer."""
    for place, (engine, keys) in enumerate(mismatch.ENGINES.items()):
        for seed, (cause, course) in enumerate(mismatch.COURSES.items()):
            rng = np.random.default_rng([seed, place])
            path = folder / f"{engine}-{cause}.jsonl"
            mismatch.write(path, engine, course(rng), rng)
            names = {"reward": keys.reward, "entropy": keys.entropy, "lr": keys.lr}
            yield Made(f"{engine} {cause}", path, read_raw(path, "step", names))
