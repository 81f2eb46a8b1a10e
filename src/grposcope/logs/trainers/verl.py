"""verl: its keys, its settings, its file logger, what it prints, and its rollout_data_dir.

- File logger: lines {"step": N, "data": {key: value, …}}, NaN written as null. It has no configuration.
- Console: lines step:N - key:value - key:value …, among anything else. Lines may carry terminal escapes, Ray's prefixes
  and np.float64(…). Some loggers cut lines at 4096 characters: the last value of such a line may have lost digits, so
  it is left out unless a bracket ends it.
- rollout_data_dir: `verl_rollouts`. rLLM, which trains with verl by default, writes episodes: `rllm_episodes`.

`critic/score` is the task reward and `critic/rewards` that after the KL penalty. `actor/ppo_kl` is how far an update
moves the policy, not the KL to the reference, which is `actor/kl_loss` or `actor/reward_kl_penalty`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats import jsonl
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.kind import LINES, LogKind
from grposcope.logs.formats.log_file import LogFile, first_few
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import rllm_episodes, verl_rollouts
from grposcope.logs.trainers.trainer import Columns, Defect, Made, Setting, Settings, Trainer, width_of_batch

_LINE = re.compile(r"(?:^|[\s)\]])step:\s?(?P<step>\d{1,15}) - (?P<rest>\S.*)")
_ALONE = re.compile(r"(?:^|[\s)\]])step:\s?\d{1,15}\s*$")
_ITEM = re.compile(r"\s*- [^\s:]+:\s?[-\d.naif]")
_GLUED = re.compile(r"(?:(?<=[\d)])[A-Z][A-Za-z ]{0,40}: *| +(?:[A-Z][A-Za-z ]{0,40}: *)?)\d{1,3}%\|.*")
"""A progress bar that was drawn at the end of a line."""

_RATE = "actor/lr"

_ROUNDED_AWAY = re.compile(r"-?0?\.0{1,4}")
"""A learning rate that was printed to a few decimals, so that what is left of it is 0."""

_ADVISED = {
    "calculate_log_probs": "actor_rollout_ref/rollout/calculate_log_probs",
    "calculate_entropy": "actor_rollout_ref/actor/calculate_entropy",
    "use_kl_loss": "actor_rollout_ref/actor/use_kl_loss",
    "rollout_data_dir": "trainer/rollout_data_dir",
}
"""Settings that have more logged, by their name in the configuration that is printed, which has each once."""

_PRINTED_SETTING = re.compile(rf"'({'|'.join(_ADVISED)})': (True\b|'[^']+')")

WIDEST = 500
"""Widest terminal."""

CUTS = (4095, 4096)
"""Lengths, in bytes, at which loggers cut lines."""

BARE, CLOSED, OPEN, BROKEN = "a number", "a bracket", "a separator", "no value"
"""How a line ends: with a number whose digits may go on, with a whole value, before a value, or within one."""


def _read_console(file: LogFile, hints: Hints) -> RawLog:
    """The rows in a printed text; lines of other kinds are counted and left out."""
    rows = ColumnBuilder()
    last_keys: Counter[str] = Counter()
    cut_lines: list[int] = []
    logged: dict[str, Any] = {}
    left_out, lost, rounded = LeftOut(), 0, 0
    for line, text, ended in _whole_lines(file):
        cleaned = clean(text)
        match = _LINE.search(cleaned) if "step:" in cleaned else None
        if match is None:
            for key, value in _PRINTED_SETTING.findall(cleaned):
                logged[_ADVISED[key]] = value == "True" or value[1:-1]
            if text.strip():
                left_out.add(line, text)
            continue
        values, keys, end = _printed_values(_GLUED.sub("", match["rest"]))
        values["step"] = float(match["step"])
        rounded += _drop_rounded_rate(values, match["rest"])
        usual = last_keys.most_common(1)
        as_usual = bool(usual) and bool(keys) and usual[0][0] == keys[-1]
        long = len(text.encode()) in CUTS or len(cleaned.encode()) in CUTS
        if end in (BROKEN, OPEN) or not ended or (long and not as_usual):
            cut_lines.append(line)
            if end == BARE:  # its digits may go on
                values.pop(keys[-1], None)
                lost += 1
            lost += end == BROKEN
        elif keys:
            last_keys[keys[-1]] += 1
        rows.row(line, values)
    if cut_lines:
        file.notes.append(
            f"{len(cut_lines)} lines are cut off: {first_few(cut_lines, 8)}; the rest of each is missing, "
            f"and {lost} values that stood last were left out, because they may lack digits"
        )
    if rounded:
        file.notes.append(
            f"{_RATE} is printed to too few decimals to be told from 0 on {rounded} lines, and was left out there"
        )
    return RawLog(file.path, rows, "verl", notes=file.notes, logged=logged, left_out=left_out)


def _drop_rounded_rate(values: dict[str, Any], rest: str) -> bool:
    """Whether the learning rate of a line was rounded to 0 in print, as 0.000; it is taken out of the values then."""
    printed = next((word.partition(":")[2] for word in rest.split(" - ") if word.startswith(f"{_RATE}:")), "")
    if not _ROUNDED_AWAY.fullmatch(printed.strip()):
        return False
    values.pop(_RATE, None)
    return True


def _with_lists(lines: Iterable[tuple[int, str, bool]]) -> Iterator[tuple[int, str, bool]]:
    """The lines, a step with a line for each value below it as one, as it is written for people to read."""
    begun: tuple[int, str] | None = None
    for line, text, ended in lines:
        if begun is not None and _ITEM.match(text):
            begun = (begun[0], f"{begun[1]} {text.strip()}")
            continue
        if begun is not None:
            yield *begun, True
        begun = (line, text.rstrip()) if _ALONE.search(text) else None
        if begun is None:
            yield line, text, ended
    if begun is not None:
        yield *begun, True


def _whole_lines(file: LogFile) -> Iterator[tuple[int, str, bool]]:
    """(line number, text, whether it is ended) of every line; what a terminal wrapped at one width is one line."""
    width = _width(file)
    begun: tuple[int, str] | None = None
    for line, text, ended in _with_lists(file.lines()):
        if begun is not None and (_LINE.search(text) or not text):
            yield *begun, True
            begun = None
        first, whole = (line, text) if begun is None else (begun[0], begun[1] + text)
        if len(text) == width and (begun is not None or _LINE.search(text)):
            begun = (first, whole)
        else:
            yield first, whole, ended
            begun = None
    if begun is not None:
        yield *begun, True


def _width(file: LogFile) -> int:
    """The width at which a terminal has wrapped the lines of steps; 0 where none has.

    All but few are of one length, as long as the longest line, and go on in the next.
    """
    lines = file.head.decode("utf-8", "replace").split("\n")
    steps = [k for k, text in enumerate(lines[:-1]) if _LINE.search(text)]
    width = max((len(lines[k]) for k in steps), default=0)
    wrapped = [k for k in steps if len(lines[k]) == width and not _LINE.search(lines[k + 1])]
    longest = max(map(len, lines)) == width <= WIDEST
    return width if longest and len(wrapped) >= max(3, 0.9 * len(steps)) else 0


def _printed_values(rest: str) -> tuple[dict[str, Any], list[str], str]:
    """(values by key, the keys in order, how the line ends) of what follows the step."""
    values: dict[str, Any] = {}
    keys: list[str] = []
    rest = rest.rstrip()
    parts = rest.removesuffix(" -").split(" - ")
    for k, pair in enumerate(parts):
        key, colon, raw = pair.rpartition(":")
        value = printed_number(raw) if colon else None
        if value is not None and key:
            values[key.strip()] = value
            keys.append(key.strip())
        elif k == len(parts) - 1:
            return values, keys, BROKEN
        elif colon and key:
            values[key.strip()] = raw[:200]
    return values, keys, OPEN if rest.endswith(" -") else CLOSED if rest.endswith(")") else BARE


def _kl_coefficient(configuration: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`kl`, the coefficient in use: of the KL loss, or of the KL in the reward, 0 if both are off."""
    if settings.get("kl_in_loss"):
        return {"kl": configuration.get("actor_rollout_ref/actor/kl_loss_coef")}
    if settings.get("kl_in_reward"):
        return {"kl": configuration.get("algorithm/kl_ctrl/kl_coef")}
    return {"kl": 0.0} if "kl_in_loss" in settings or "kl_in_reward" in settings else {}


def _never_high(columns: Columns, settings: Settings) -> bool | None:
    """A share of sequences above the threshold that is 0 throughout, though the share of tokens above it is not."""
    sequences = columns.get("rollout_corr/rollout_is_seq_fraction_high")
    tokens = columns.get("rollout_corr/rollout_is_ratio_fraction_high")
    if sequences is None or bool((sequences > 0).any()):
        return False
    return True if tokens is not None and bool((tokens > 0).any()) else None


def _fixed_batches(columns: Columns, settings: Settings) -> bool | None:
    """That micro-batches have one size, which disproves that their rollouts were put in another order."""
    dynamic = settings.get("dynamic_batches")
    return False if dynamic is False else None


def turns(columns: Columns) -> dict[str, Made]:
    """Turns of the policy: verl counts its messages and those of users and tools, so that one answer is two."""
    made = {}
    for metric, what in (("agent/turns", "mean"), ("agent/turns_max", "max")):
        for key in (f"num_turns/{what}", f"training/num_turns/{what}"):
            if key in columns and metric not in made:
                made[metric] = Made(columns[key] / 2, f"{key} ÷ 2")
    return made


VERL = Trainer(
    name="verl",
    title="verl",
    recognises=lambda keys: any(key.startswith(("critic/score", "critic/rewards", "actor/pg_")) for key in keys),
    keys={
        "reward": ("critic/score/mean",),
        "reward_after_kl": ("critic/rewards/mean",),
        "reward_max": ("critic/score/max",),
        "reward_min": ("critic/score/min",),
        "entropy": ("actor/entropy",),
        "entropy_loss": ("actor/entropy_loss",),
        "kl_loss": ("actor/kl_loss",),
        "kl_penalty": ("actor/reward_kl_penalty",),
        "kl_old_k1": ("actor/ppo_kl",),
        "length": ("response_length/mean",),
        "length_min": ("response_length/min",),
        "length_max": ("response_length/max",),
        "at_limit": ("response_length/clip_ratio",),
        "loss": ("actor/loss",),
        "policy_loss": ("actor/pg_loss",),
        "grad_norm": ("actor/grad_norm",),
        "clip_fraction": ("actor/pg_clipfrac",),
        "clip_dual": ("actor/pg_clipfrac_lower",),
        "lr": ("actor/lr",),
        "tokens_batch": ("perf/total_num_tokens",),
        "prompt_length": ("prompt_length/mean",),
        "seconds_step": ("timing_s/step", "perf/time_per_step"),
        "epoch": ("training/epoch",),
        "advantage_mean": ("critic/advantages/mean",),
        "advantage_max": ("critic/advantages/max",),
        "advantage_min": ("critic/advantages/min",),
        "mismatch/k1": ("rollout_corr/kl",),
        "mismatch/k3": ("rollout_corr/k3_kl",),
        "mismatch/chi2_token": ("rollout_corr/chi2_token",),
        "mismatch/chi2_sequence": ("rollout_corr/chi2_seq",),
        "mismatch/correlation": ("training/rollout_actor_probs_pearson_corr",),
        "mismatch/prob_diff": ("training/rollout_probs_diff_mean",),
        "importance/weight": ("rollout_corr/rollout_is_mean",),
        "importance/weight_min": ("rollout_corr/rollout_is_min",),
        "importance/weight_max": ("rollout_corr/rollout_is_max",),
        "importance/ess": ("rollout_corr/rollout_is_eff_sample_size",),
        "importance/masked": ("rollout_corr/rollout_rs_masked_fraction",),
        "importance/masked_sequences": ("rollout_corr/rollout_rs_seq_masked_fraction",),
        "importance/out_of_bounds": ("rollout_corr/rollout_is_oob_ratio",),
        "staleness/mean": ("training/off_policy/trajectory_staleness/mean",),
        "staleness/max": ("training/off_policy/trajectory_staleness/max",),
        "weight_version": ("fully_async/count/current_param_version",),
        "agent/calls": ("tool_call_counts/mean", "agent/tool_call_mean"),
        "agent/seconds_tools": ("agent_loop/tool_calls/mean",),
    },
    made=turns,
    component=re.compile(r"gdpo/(?P<name>.+)/(?P<what>mean|std)"),
    conventions={"ddof": 1, "eps": 1e-6},
    version="0.9.1",
    configured=lambda keys: any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator")) for key in keys),
    settings=(
        Setting("actor_rollout_ref.rollout.n_agent", "group"),  # of Search-R1, whose `n` stays 1
        Setting("actor_rollout_ref.rollout.n", "group", 1),
        Setting("actor_rollout_ref.actor.optim.lr", "lr", 1e-06),
        Setting("algorithm.adv_estimator", "advantage", "gae"),
        Setting("algorithm.gdpo_reward_keys", "reward_names"),
        Setting("algorithm.gdpo_reward_weights", "reward_weights"),
        Setting("algorithm.norm_adv_by_std_in_grpo", "scale_rewards", True),
        Setting("algorithm.use_kl_in_reward", "kl_in_reward", False),
        Setting("actor_rollout_ref.actor.use_kl_loss", "kl_in_loss", False),
        Setting("actor_rollout_ref.actor.kl_loss_type", "divergence"),
        Setting("actor_rollout_ref.actor.loss_agg_mode", "loss_type"),
        Setting("actor_rollout_ref.rollout.temperature", "temperature", 1.0),
        Setting("data.max_response_length", "max_tokens", 512),
        Setting("data.train_batch_size", "prompts", 1024),
        Setting("actor_rollout_ref.actor.clip_ratio_low", "clip_low", 0.2),
        Setting("actor_rollout_ref.actor.clip_ratio", "clip_low", 0.2),
        Setting("actor_rollout_ref.rollout.top_k", "top_k"),
        Setting("actor_rollout_ref.rollout.top_p", "top_p"),
        Setting("actor_rollout_ref.actor.ppo_epochs", "iterations", 1),
        Setting("actor_rollout_ref.actor.optim.warmup_style", "schedule"),
        Setting("actor_rollout_ref.actor.optim.lr_warmup_steps", "warmup"),
        Setting("trainer.total_training_steps", "steps"),
        Setting("actor_rollout_ref.actor.grad_clip", "clip_grad"),
        Setting("algorithm.kl_ctrl.kl_coef", default=0.001),
        Setting("algorithm.gamma", default=1.0),
        Setting("algorithm.lam", default=1.0),
        Setting("algorithm.filter_groups.enable", default=False),
        Setting("data.max_prompt_length", "max_prompt", 512),
        Setting("actor_rollout_ref.rollout.max_model_len", "room"),
        Setting("actor_rollout_ref.actor.entropy_coeff", "entropy_bonus", 0),
        Setting("trainer.save_freq", default=-1),
        Setting("trainer.total_epochs", default=30),
        Setting("actor_rollout_ref.actor.strategy", default="fsdp"),
        Setting("actor_rollout_ref.actor.ppo_mini_batch_size", default=256),
        Setting("actor_rollout_ref.actor.use_dynamic_bsz", "dynamic_batches", False),
        Setting("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", default=16384),
        Setting("actor_rollout_ref.actor.clip_ratio_high", default=0.2),
        Setting("actor_rollout_ref.actor.policy_loss.loss_mode", default="vanilla"),
        Setting("actor_rollout_ref.actor.kl_loss_coef", default=0.001),
        Setting("actor_rollout_ref.actor.ulysses_sequence_parallel_size", default=1),
        Setting("actor_rollout_ref.actor.optim.optimizer", "optim", "AdamW"),
        Setting("actor_rollout_ref.actor.fsdp_config.model_dtype", default="fp32"),
        Setting("actor_rollout_ref.rollout.do_sample", default=True),
        Setting("actor_rollout_ref.rollout.tensor_model_parallel_size", default=2),
        Setting("actor_rollout_ref.model.lora_rank", default=0),
        Setting("actor_rollout_ref.model.lora.merge", default=False),
        Setting("actor_rollout_ref.rollout.load_format", default="dummy"),
        Setting("actor_rollout_ref.rollout.layered_summon", default=False),
        Setting("actor_rollout_ref.rollout.checkpoint_engine.backend", default="naive"),
        Setting("trainer.nnodes", default=1),
        Setting("trainer.n_gpus_per_node", default=8),
    ),
    derive=_kl_coefficient,
    defects=(
        Defect(
            "entropy in another order",
            "verl",
            ("actor/entropy",),
            (0, 3),
            (0, 4, 1),
            "with use_dynamic_bsz averages the entropies of some rollouts over the masks of others",
            "verl #1943, JustRL #5",
            False,
            _fixed_batches,
        ),
        Defect(
            "share at the limit",
            "verl",
            ("response_length/clip_ratio",),
            (0, 9),
            None,
            "compares lengths with the longest completion of the batch, not with the limit",
            "verl #7817",
            True,
            width_of_batch("response_length/clip_ratio", "response_length/max"),
        ),
        Defect(
            "share of high sequences",
            "verl",
            ("rollout_corr/rollout_is_seq_fraction_high",),
            (0, 6),
            (0, 9),
            "is 0 by construction, because it is computed from weights that are already capped",
            "verl #6806",
            True,
            _never_high,
        ),
    ),
    logs=(
        LogKind(partial(jsonl.read, unwrap="data"), shapes=LINES, rows=({"step": object, "data": dict},)),
        verl_rollouts.KIND,
        rllm_episodes.KIND,
        LogKind(_read_console, printed=re.compile(rb"step:\s?\d{1,15}\s+- [^\s:]+:[-\d.np]")),
    ),
    how_to_log={
        "groups": "trainer.rollout_data_dir",
        "reward": "always logged; give the training log itself",
        "evaluation": "data.val_files and trainer.test_freq",
        "dead_fraction": "trainer.rollout_data_dir",
        "entropy": "actor_rollout_ref.actor.calculate_entropy=True",
        "kl": "actor.use_kl_loss=True",
        "length": "response_length/mean, always logged",
        "truncated": "response_length/clip_ratio, always logged",
        "grad_norm": "actor/grad_norm, logged where the optimiser step runs",
        "lr": "actor/lr, always logged",
        "loss": "actor/pg_loss; give the log of the trainer itself",
        "clip_fraction": "actor/pg_clipfrac, always logged; give the training log itself",
        "components": "extra keys of the reward function",
        "component_std": "trainer.rollout_data_dir has the rollouts",
        "reward_std": "trainer.rollout_data_dir",
        "mismatch": "actor_rollout_ref.rollout.calculate_log_probs=True",
        "agent/turns": "num_turns/mean, with actor_rollout_ref.rollout.multi_turn.enable=True",
        "agent/calls": "tool_call_counts/mean, where the agent loop counts tool calls",
    },
)
"""Everything that is known of verl."""
