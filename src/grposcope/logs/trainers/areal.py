"""AReaL: its keys in W&B, SwanLab, TensorBoard or JSON lines, and the tables that it prints.

`task_reward` is the reward before scaling; `no_eos_ratios` the share of completions without an end token;
`approx_kl` is that to the policy before the update, by the log-ratio (k1). `behave_approx_kl` is the mean log-ratio of
that policy to the one that sampled and `behave_imp_weight` the mean ratio, both over the tokens below its cap.
`seq_len` has the prompt in it; what is left without `prompt_len` is the completion.

On a console it prints that a step is done, and a table of its metrics, several of them in a line.

    (AReaL) 20260814-01:00:00.000 StatsLogger INFO: Epoch 1/3 Step 1/200 Train step 1/600 done.
    ╒═══════════════════════════╤════════════╤════════════════╤════════════╕
    │ ppo_actor/task_reward/avg │ 2.6204e-01 │ rollout/reward │ 2.6204e-01 │

Where a step has several tables, one for each of its updates, a row has the mean of each metric. Tables before the first
such line, or without any, are numbered from 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grposcope.core.errors import UserError
from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Columns, Defect, Made, Setting, Trainer, width_of_batch

_DONE = re.compile(r"Train step (?P<step>\d{1,12})/\d{1,12} done")
_KEY = re.compile(r"[A-Za-z_][\w./+-]{0,120}")
_BAR = "│"


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A row per step with the metrics of its tables; UserError where no table has a number."""
    left_out, tables = LeftOut(), list[tuple[int, float, dict[str, float]]]()
    step, inside = 0.0, False
    for line, text, ended in file.lines():
        cleaned = clean(text)
        if (done := _DONE.search(cleaned)) is not None:
            step, inside = float(done["step"]), False
        elif values := _cells(cleaned if ended else ""):
            if not inside or not values.keys().isdisjoint(tables[-1][2]):
                tables.append((line, step, {}))
            tables[-1][2].update(values)
            inside = True
        elif text.strip() and not (inside and set(cleaned.strip()) <= set("├┼┤─╞═╪╡╘╧╛╒╤╕│ ")):
            inside = False
            left_out.add(line, text)
    if not tables:
        raise UserError(f"{file.path}: no table of AReaL has a number; give the log of the training")
    rows = ColumnBuilder()
    for line, number, values in _by_step(tables):
        rows.row(line, {**values, "step": number})
    return RawLog(file.path, rows, "areal", notes=file.notes, left_out=left_out)


def _by_step(
    tables: Sequence[tuple[int, float, dict[str, float]]],
) -> list[tuple[int, float, dict[str, float]]]:
    """The line, the step and the values of each step: means over its tables, and one step for each without number."""
    rows: list[tuple[int, float, list[dict[str, float]]]] = []
    for count, (line, step, values) in enumerate(tables, 1):
        if step and rows and rows[-1][1] == step:
            rows[-1][2].append(values)
        else:
            rows.append((line, step or float(count), [values]))
    return [(line, step, _means(several)) for line, step, several in rows]


def _means(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the tables that have it; of one table its values as they are."""
    if len(tables) == 1:
        return tables[0]
    keys = dict.fromkeys(key for values in tables for key in values)
    told = {key: [values[key] for values in tables if key in values] for key in keys}
    return {key: sum(numbers) / len(numbers) for key, numbers in told.items()}


def _cells(text: str) -> dict[str, float]:
    """The pairs of a line of a table: a name and a number in cells beside each other."""
    cells = [cell.strip() for cell in text.partition(_BAR)[2].split(_BAR)]
    pairs = {key: printed_number(value) for key, value in zip(cells[::2], cells[1::2], strict=False)
             if _KEY.fullmatch(key)}  # fmt: skip
    return {key: value for key, value in pairs.items() if value is not None}


KIND = LogKind(
    _read, printed=re.compile(f"{_BAR} *(?:ppo_actor|rollout|timeperf)/[^{_BAR}\n]*{_BAR} *[-+\\d.n]".encode())
)
"""A text is AReaL's where a table has a name of its metrics beside a number."""


def _versions(which: str) -> tuple[str, ...]:
    """Keys of the staleness against the weights that train, in the scopes that AReaL logs it in."""
    key = f"version_stats/sample_staleness_theta_{which}"
    return f"ppo_actor/update/{key}", f"ppo_actor/{key}", key


def _made(columns: Columns) -> dict[str, Made]:
    """The length of completions: sequences less their prompts."""
    whole, prompt = columns.get("ppo_actor/seq_len/avg"), columns.get("ppo_actor/prompt_len/avg")
    if whole is None or prompt is None:
        return {}
    return {"length": Made(whole - prompt, "ppo_actor/seq_len/avg − ppo_actor/prompt_len/avg")}


AREAL = Trainer(
    name="areal",
    title="AReaL",
    recognises=lambda keys: any(key.startswith("ppo_actor/") for key in keys),
    keys={
        "reward": ("ppo_actor/task_reward/avg", "rollout/reward"),
        "entropy_loss": ("ppo_actor/update/entropy/avg",),
        "kl_old_k1": ("ppo_actor/update/approx_kl/avg",),
        "truncated": ("ppo_actor/no_eos_ratios/avg",),
        "prompt_length": ("ppo_actor/prompt_len/avg",),
        "policy_loss": ("ppo_actor/update/actor_loss/avg",),
        "grad_norm": ("ppo_actor/update/grad_norm",),
        "clip_fraction": ("ppo_actor/update/clip_ratio/avg",),
        "lr": ("ppo_actor/update/lr",),
        "seconds_step": ("timeperf/step/total",),
        "mismatch/log_ratio": ("ppo_actor/update/behave_approx_kl/avg",),
        "importance/weight": ("ppo_actor/update/behave_imp_weight/avg",),
        "importance/masked": ("ppo_actor/update/rs_filtered_fraction", "ppo_actor/update/rs_filtered_fraction/avg"),
        "staleness/mean": _versions("avg"),
        "staleness/max": _versions("max"),
        "weight_version": (
            "ppo_actor/update/version_stats/v_theta",
            "ppo_actor/version_stats/v_theta",
            "version_stats/v_theta",
        ),
    },
    version="1.0.4",
    configured=lambda keys: (
        any(key.startswith("gconfig.") for key in keys) and any(key.startswith("actor.") for key in keys)
    ),
    settings=(
        Setting("gconfig.n_samples", "group", 1),
        Setting("train_dataset.batch_size", "prompts", 1),
        Setting("actor.optimizer.lr", "lr"),
        Setting("gconfig.temperature", "temperature", 1.0),
        Setting("gconfig.max_new_tokens", "max_tokens", 16384),
        Setting("gconfig.top_p", "top_p", 1.0),
        Setting("gconfig.greedy", default=False),
        Setting("actor.temperature", default=1.0),
        Setting("actor.eps_clip", "clip_low", 0.2),
        Setting("actor.eps_clip_higher", "clip_high"),
        Setting("actor.kl_ctl", default=0.1),
        Setting("actor.ppo_n_minibatches", default=4),
        Setting("actor.use_decoupled_loss", default=False),
        Setting("actor.recompute_logprob", default=False),
        Setting("actor.importance_sampling_level", default="token"),
        Setting("actor.dtype", default="bfloat16"),
        Setting("actor.use_lora", default=False),
        Setting("actor.optimizer.type", "optim", "adam"),
        Setting("rollout.max_head_offpolicyness", default=0),
        Setting("total_train_steps", "steps"),
    ),
    logs=(KIND,),
    made=_made,
    defects=(
        Defect(
            "share at the limit",
            "areal",
            ("ppo_actor/no_eos_ratios/avg",),
            (0, 0),
            None,
            "compares lengths with the width of the padded batch, not with the limit",
            "source of AReaL 1.0",
            True,
            width_of_batch("ppo_actor/no_eos_ratios/avg", "ppo_actor/seq_len/max"),
        ),
    ),
    how_to_log={
        "reward": "ppo_actor/task_reward/avg, always logged",
        "evaluation": "evaluator.freq_steps",
        "entropy": "ppo_actor/update/entropy/avg, always logged",
        "length": "ppo_actor/seq_len/avg and prompt_len/avg, always logged",
        "truncated": "ppo_actor/no_eos_ratios/avg, always logged",
        "grad_norm": "ppo_actor/update/grad_norm, always logged",
        "lr": "ppo_actor/update/lr, always logged",
        "loss": "ppo_actor/update/actor_loss/avg, always logged",
        "clip_fraction": "ppo_actor/update/clip_ratio/avg, always logged",
        "mismatch": "ppo_actor/update/behave_approx_kl/avg, with use_decoupled_loss",
    },
)
"""Everything that is known of AReaL."""
