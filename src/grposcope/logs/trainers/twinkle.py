"""Twinkle: what its recipes print, and the same keys in SwanLab, W&B or JSON lines.

    [Step 5/200] {'train/total_reward': 0.5, 'learning rate': '1.000000e-06', 'grad_norm': '0.300000', …}

`total_reward` is the whole reward, `NAME_reward` a part of it; the spreads are over all completions (ddof 1).
`approx_kl` is the k3 estimate between the policy of the update and the one that sampled. With several updates to a
batch of rollouts, only the first has the rewards.
"""

from __future__ import annotations

import re

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_pairs
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Trainer, with_prefix

_LINE = re.compile(r"\[?\bStep (?P<step>\d{1,15})(?:/\d{1,15}\]|:) \{(?P<rest>['\"].*)")
_OWN = frozenset(form for key in ("policy_confidence", "mean_new_logp") for form in with_prefix(key))


def _read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows, left_out = ColumnBuilder(), LeftOut()
    for line, text, _ in file.lines():
        if match := _LINE.search(clean(text)):
            rows.row(line, {"step": float(match["step"]), **printed_pairs(match["rest"])})
        elif text.strip():
            left_out.add(line, text)
    return RawLog(file.path, rows, "twinkle", notes=file.notes, left_out=left_out)


TWINKLE = Trainer(
    name="twinkle",
    title="Twinkle",
    recognises=lambda keys: bool(keys & _OWN) or {"total_reward", "completion_length"} <= {
        key.removeprefix("train/") for key in keys
    },
    keys={
        "reward": with_prefix("total_reward"),
        "reward_std_batch": with_prefix("total_reward_std"),
        "dead_fraction": with_prefix("frac_reward_zero_std"),
        "entropy": with_prefix("entropy"),
        "kl_old": with_prefix("approx_kl"),
        "length": with_prefix("completion_length"),
        "loss": ("loss",),
        "grad_norm": ("grad_norm",),
        "clip_low": with_prefix("clip_ratio_low"),
        "clip_high": with_prefix("clip_ratio_high"),
        "clip_fraction": with_prefix("clip_ratio"),
        "lr": ("learning rate", "learning rate(param group 1)"),
    },
    component=re.compile(r"(?:train/)?(?!total_)(?P<name>\w+)_reward(?:_(?P<what>std))?"),
    logs=(LogKind(
        _read_console,
        printed=re.compile(rb"\bStep \d{1,15}(?:/\d{1,15}\]|:) \{'(?:train/|profiling/|learning rate|loss')"),
    ),),
    how_to_log={
        "reward": "CompletionRewardMetric with the key total",
        "dead_fraction": "put train/frac_reward_zero_std into the dict that is logged",
        "entropy": "GRPOMetric with entropies",
        "length": "CompletionRewardMetric with completion_lengths",
        "grad_norm": "LossMetric, always in calculate_metric",
        "lr": "TrainMetric, always in calculate_metric",
        "loss": "LossMetric, always in calculate_metric",
        "clip_fraction": "GRPOMetric with advantages",
    },
)  # fmt: skip
"""Everything that is known of Twinkle."""
