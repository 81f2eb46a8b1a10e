"""Made-up records of runs, in the format that `grposcope train` writes, for tests of reading and showing.

Prompts differ in difficulty and the policy gets better: prompt x is solved with probability
sigmoid(skill(step) + easiness(x)), independently for each rollout, so that every statistic of the
groups has a known truth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

STARTED = 1_760_000_000.0

HOSTILE = (
    "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07 back\x08space\x00nul",
    "left \u202egnp.exe\u202c right \u2066iso\u2069 \u200bzero\ufeff width \u061c",
    "a" * 1_000_000,
    "&lt;b&gt; & <!-- --> \u2028line\u2029paragraph ]]> ${1+1} {{7*7}}",
    "مرحبا שלום 你好 e\u0301\u0323 👩\u200d👩\u200d👧 ",
)
"""Completions that try to be something else than text."""


def dumps(content: Any) -> str:
    """JSON as the record has it, with strings for what JSON lacks."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not np.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return value

    return json.dumps(plain(content), ensure_ascii=False, allow_nan=False)


def skill(step: np.ndarray | float, steps: int) -> Any:
    """Log-odds of solving a prompt of average difficulty: from hard to mostly solved."""
    return -1.2 + 3.6 * (1 - np.exp(-3.0 * np.asarray(step) / steps))


def make(
    folder: Path,
    steps: int = 40,
    prompts: int = 8,
    group: int = 8,
    version: int = 2,
    seed: int = 0,
    phase: str = "finished",
    texts: tuple[str, ...] = (),
    rollouts_every: int = 10,
    settings: dict[str, Any] | None = None,
    spread: float = 1.5,
) -> Path:
    """Write a run of `steps` steps into `folder` and return it. texts: completions to record instead of answers."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    given = {"recipe": "grpo", "seed": seed, "steps": steps, "prompts": prompts, "group": group, "eval_samples": 4}
    (folder / "config.json").write_text(dumps(_config({**given, **(settings or {})}, version)))
    easiness = rng.normal(0, spread, 500)
    rows, groups = [], []
    now = STARTED
    for step in range(1, steps + 1):
        chosen = rng.integers(0, 500, prompts)
        p = 1 / (1 + np.exp(-(skill(step, steps) + easiness[chosen])))
        rewards = (rng.random((prompts, group)) < p[:, None]).astype(float)
        cut = (rng.random((prompts, group)) < 0.05) & (rewards == 0)
        row = _step(step, steps, rewards, cut, rng)
        now += row["seconds_sample"] + row["seconds_update"] + 0.01
        rows.append(row | {"time": now})
        for x, r, c in zip(chosen, rewards, cut, strict=True):
            line = {"step": step, "problem": f"train-{x}", "rewards": r.tolist()}
            groups.append({**line, "truncated": c.tolist()} if version > 1 else line)
    if version == 1:
        rows = [{name: value for name, value in row.items() if name not in ("truncated", "time")} for row in rows]
    _write(folder / "steps.jsonl", rows)
    _write(folder / "groups.jsonl", groups)
    _write(folder / "evals.jsonl", [evaluation(step, steps, rng) for step in sorted({*range(0, steps, 10), steps})])
    if version > 1:
        state = {"step": steps, "steps": steps, "phase": phase, "time": now, "pid": 4_000_000}
        (folder / "phase.json").write_text(dumps(state).ljust(200) + "\n")
        for step in range(rollouts_every, steps + 1, rollouts_every):
            rollouts(folder, step, rng, prompts=min(prompts, 3), group=group, texts=texts)
    if phase == "finished":
        (folder / "summary.json").write_text(dumps({"steps": steps, "interrupted": False, "seconds": now - STARTED}))
    return folder


def _config(settings: dict[str, Any], version: int) -> dict[str, Any]:
    """config.json of a run with these settings."""
    environment: dict[str, Any] = {"grposcope": "0.1.0", "python": "3.11", "device": "cpu", "threads": 2, "cpus": 2}
    if version > 1:
        environment["git"] = {"commit": "0123456789abcdef", "branch": "main", "dirty": False}
    return {
        "format": version,
        "settings": settings,
        "task": "arithmetic:steps=3",
        "model": {"name": "tiny", "class": "LlamaForCausalLM", "parameters": 1_287_040},
        "objective": {"name": "grpo", "advantage": "standardized", "surrogate": {"function": "clip", "low": 0.2}},
        "sampling": {"max_tokens": 25, "temperature": 1.0, "top_k": 0, "top_p": 1.0},
        "lr": 4e-4,
        "started": "2025-10-09T08:53:20+00:00",
        "environment": environment,
    }


def _step(step: int, steps: int, rewards: np.ndarray, cut: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """The row of one optimiser step on these rewards and truncations, both (P, G)."""
    prompts, group = rewards.shape
    dead = (rewards == rewards[:, :1]).all(1)
    done = step / steps
    sample, update = rng.gamma(60, 0.004), rng.gamma(60, 0.005)
    tokens = int(prompts * group * (15 + 3 * done + rng.normal(0, 0.3)))
    return {
        "step": step,
        "reward": rewards.mean(),
        "reward_std": rewards.std(1, ddof=1).mean() if group > 1 else float("nan"),
        "dead_fraction": dead.mean(),
        "entropy": 0.45 * np.exp(-1.5 * done) + 0.02 + rng.gamma(4, 0.004),
        "kl": float("nan"),
        "kl_old": 2e-5 * rng.gamma(3, 0.3),
        "length": tokens / (prompts * group),
        "truncated": cut.mean(),
        "loss": rng.normal(0, 1e-8),
        "grad_norm": 0.25 * rng.gamma(12, 1 / 12),
        "clip_low": rng.beta(1, 400),
        "clip_high": rng.beta(1, 200),
        "lr": 4e-4 * min(1, step / 20) * (1 - done),
        "rollouts_trained": int(group * (prompts - dead.sum())),
        "tokens": tokens,
        "seconds_sample": sample,
        "seconds_grade": 0.001,
        "seconds_update": update,
        "tokens_per_second": tokens / (sample + update),
    }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(dumps(row) + "\n" for row in rows))


def evaluation(step: int, steps: int, rng: np.random.Generator, n: int = 200) -> dict[str, Any]:
    """A held-out evaluation of a policy as good as at `step`."""
    solved = rng.binomial(4, 1 / (1 + np.exp(-(skill(step, steps) + rng.normal(0, 1.5, n)))))
    row: dict[str, Any] = {"step": step}
    for k, passed in ((1, solved / 4), (2, 1 - (4 - solved) * (3 - solved) / 12), (4, solved > 0)):
        row[f"pass@{k}"] = {"value": passed.mean(), "se": passed.std(ddof=1) / np.sqrt(n), "n": n, "flag": ""}
    return row


def rollouts(
    folder: Path, step: int, rng: np.random.Generator, prompts: int = 3, group: int = 4, texts: tuple[str, ...] = ()
) -> None:
    """A parquet file with rollouts of `step`."""
    rows = []
    for x in range(prompts):
        for g in range(group):
            text = texts[(x * group + g) % len(texts)] if texts else f"{x + 40}-{g}={x + 40 - g},{step}+{g}={step + g}."
            size = 1 if not texts else 60 if len(text) < 10_000 else len(text)
            tokens = [text[i : i + size] for i in range(0, len(text), size)]
            logp = -rng.gamma(0.4, 0.6, len(tokens))
            rows.append(
                {
                    "step": step,
                    "problem": f"train-{x}",
                    "prompt": f"{x + 40}-{x}+{step}=",
                    "rollout": g,
                    "completion": text,
                    "reward": float(rng.random() < 0.5),
                    "truncated": bool(len(tokens) > 24),
                    "tokens": tokens,
                    "logp": logp.tolist(),
                    "entropy": rng.gamma(0.5, 0.4, len(tokens)).tolist(),
                    "weight": (rng.normal(0, 0.01) * np.ones(len(tokens))).tolist(),
                }
            )
    schema = pa.schema(
        [("step", pa.int32()), ("problem", pa.string()), ("prompt", pa.string()), ("rollout", pa.int16()),
         ("completion", pa.string()), ("reward", pa.float64()), ("truncated", pa.bool_()),
         ("tokens", pa.list_(pa.string()))]
        + [(name, pa.list_(pa.float32())) for name in ("logp", "entropy", "weight")]
    )  # fmt: skip
    (folder / "rollouts").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), folder / "rollouts" / f"step-{step:06d}.parquet")
