"""Are faults of agents named in the logs of eight trainers, and are healthy agents left alone? Made logs.

    python benchmarks/agents.py              # 20 seeds of every trainer and fault, about five minutes
    python benchmarks/agents.py --seeds 3

A log has 60 to 160 rows with correlated noise under the trainer's own keys, written as the trainer writes it. A fault
begins somewhere between a fifth and three fifths of the run, and grows over up to a third of it or within a row. Rules,
set before the run: a fault is *named* where `diagnose` has it as present; a healthy agent is *flagged* where any fault
of agents is present, and *failing* where any fault at all is a warning or worse. Healthy agents are of six kinds, some
of which look like faults: calls that are learned, turns that grow and pay, failures that fall, episodes that are all
ended by their environment, a fixed number of turns, and one turn.

Each trainer has the faults that its keys can show; `CAN` says which.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from grposcope.faults import catalogue
from grposcope.faults.judge import diagnose
from grposcope.logs import read

Floats = NDArray[np.float64]
World = dict[str, Floats]
"""Quantity -> its values (n,)."""

COLLAPSED, LOOPS, LIMIT, TOOLS, CALLS, ZEROS, CUT = (
    "collapsed calls", "looping", "turn limit", "failing tools", "malformed calls", "failures as zeros",
    "ends not counted",
)  # fmt: skip

CAN: Mapping[str, tuple[str, ...]] = {
    "trl": (COLLAPSED, LOOPS, TOOLS, CUT),
    "trl async": (COLLAPSED, LOOPS, LIMIT, TOOLS, CALLS, CUT),
    "verl": (COLLAPSED, LOOPS, LIMIT),
    "prime-rl": (COLLAPSED, LOOPS, LIMIT, ZEROS),
    "skyrl": (COLLAPSED, LOOPS),
    "nemo-rl": (COLLAPSED, LOOPS, LIMIT),
    "slime": (COLLAPSED, LOOPS, LIMIT),
    "ms-swift": (COLLAPSED, LOOPS, CUT),
    "roll": (COLLAPSED, LOOPS, CALLS),
}
"""Trainer -> the faults of agents that its keys can show."""

HEALTHY = ("calls learned", "turns that pay", "failures fall", "ended by environment", "fixed turns", "one turn")


def noise(rng: np.random.Generator, n: int, size: float) -> Floats:
    """AR(1) noise of standard deviation `size`."""
    phi = rng.uniform(0.0, 0.6)
    drawn = rng.normal(size=n)
    drawn[1:] *= np.sqrt(1 - phi**2)
    return np.asarray(size * lfilter([1.0], [1.0, -phi], drawn), np.float64)


def onset(rng: np.random.Generator, n: int) -> Floats:
    """0 before a fault, 1 after it, with a rise of a row or up to a third of the run."""
    begins, width = rng.uniform(0.2, 0.6) * n, max(1.0, rng.choice([0.0, rng.uniform(0.1, 0.33)]) * n)
    return np.clip((np.arange(n) - begins) / width, 0, 1)


def agent(rng: np.random.Generator, kind: str) -> World:
    """The quantities of a run of an agent: healthy of one of HEALTHY, or with a fault."""
    n = int(rng.integers(60, 161))
    u, fault = np.arange(n) / n, onset(rng, n)
    limit = float(rng.integers(6, 13))
    turns = np.full(n, rng.uniform(2.2, 0.55 * limit))
    reward = rng.uniform(0.2, 0.4) + rng.uniform(0.15, 0.35) * u
    failures = np.full(n, rng.uniform(0.02, 0.12))
    bad, errors = np.full(n, rng.uniform(0.01, 0.06)), rng.exponential(0.006, n)
    stopped, cut = np.full(n, rng.uniform(0.0, 0.06)), np.full(n, rng.uniform(0.01, 0.05))
    if kind == "calls learned":
        turns = 1.2 + (turns - 1.2) * np.clip(3 * u, 0, 1)
    elif kind == "turns that pay":
        turns = turns * (1 + 0.8 * u)
        reward = 0.2 + 0.5 * u
    elif kind == "failures fall":
        failures, bad = 0.4 * np.exp(-4 * u) + 0.05, 0.3 * np.exp(-4 * u) + 0.02
    elif kind == "fixed turns":
        turns, limit = np.full(n, 3.0), 3.0
    elif kind == "one turn":
        turns, limit = np.ones(n), 1.0
    elif kind == COLLAPSED:
        turns = 1 + (turns - 1) * (1 - fault * rng.uniform(0.9, 1.0))
        reward = reward - 0.1 * fault
    elif kind in (LOOPS, LIMIT):
        top = limit * rng.uniform(0.95, 1.0) if kind == LIMIT else turns * rng.uniform(1.8, 2.5)
        turns = turns + (np.minimum(top, limit) - turns) * fault
        limit = limit if kind == LIMIT else float(np.ceil(2.6 * turns.max()))
        stopped = np.clip(stopped + (kind == LIMIT) * 0.7 * fault, 0, 1)
        reward = np.where(fault > 0, reward[np.argmax(fault > 0)] - rng.uniform(0.0, 0.2) * fault, reward)
    elif kind == TOOLS:
        failures = failures + rng.uniform(0.4, 0.8) * fault
        reward = reward * (1 - 0.4 * fault)
    elif kind == CALLS:
        bad = bad + rng.uniform(0.4, 0.7) * fault
    elif kind == ZEROS:
        errors = errors + (rng.random(n) < 0.25) * rng.uniform(0.1, 0.5, n)
        reward = reward * (1 - errors)
    world: World = {
        "reward": np.clip(reward + noise(rng, n, 0.02), 0, 1),
        "turns": np.maximum(turns * np.exp(noise(rng, n, 0.04)), 1.0) if limit > 1 else turns,
        "failures": np.clip(failures + noise(rng, n, 0.015), 0, 1),
        "bad": np.clip(bad + noise(rng, n, 0.01), 0, 1),
        "errors": np.clip(errors, 0, 1),
        "stopped": np.clip(stopped + noise(rng, n, 0.01), 0, 1),
        "cut": np.clip(cut + noise(rng, n, 0.01), 0, 1),
        "entropy": (0.8 - 0.2 * u) * np.exp(noise(rng, n, 0.04)),
        "grad_norm": 0.5 * np.exp(noise(rng, n, 0.15)),
        "std": 0.35 * np.exp(noise(rng, n, 0.05)),
    }
    if kind == "fixed turns":
        world["turns"] = turns
    world["most"] = np.minimum(np.full(n, limit), np.ceil(world["turns"] + rng.integers(0, 4, n)))
    world["most"] = np.full(n, limit) if kind == LIMIT else np.maximum(world["most"], np.ceil(world["turns"]))
    world["calls"] = np.maximum(world["turns"] - 1, 0.0)
    world["length"] = 90 * world["turns"] * np.exp(noise(rng, n, 0.03))
    world["longest"] = world["length"] * rng.uniform(1.8, 3.0, n)
    world["shortest"] = world["length"] * rng.uniform(0.1, 0.4, n)
    if kind in ("ended by environment", CUT):
        world["cut"] = np.ones(n) if rng.random() < 0.5 else np.clip(rng.uniform(0.5, 0.9) + noise(rng, n, 0.03), 0, 1)
    else:
        world["longest"][world["cut"] > 0.01] = world["length"].max() * 3.2  # the limit
    return world


def trl(w: World, k: int) -> dict[str, float]:
    """A row of TRL with tools."""
    return {
        "step": k + 1, "loss": 0.0, "grad_norm": w["grad_norm"][k], "learning_rate": 1e-6, "reward": w["reward"][k],
        "reward_std": w["std"][k], "rewards/solved/mean": w["reward"][k], "rewards/solved/std": w["std"][k],
        "frac_reward_zero_std": 0.2, "entropy": w["entropy"][k], "completions/mean_length": w["length"][k],
        "completions/min_length": w["shortest"][k], "completions/max_length": w["longest"][k],
        "completions/clipped_ratio": w["cut"][k], "tools/call_frequency": w["calls"][k],
        "tools/failure_frequency": w["failures"][k], "epoch": k / 100,
    }  # fmt: skip


def trl_async(w: World, k: int) -> dict[str, float]:
    """A row of TRL's asynchronous trainer, which logs totals by tool."""
    row = trl(w, k)
    del row["tools/failure_frequency"]
    calls = 256 * w["calls"][k]
    return row | {
        "tools/loop_exhausted_frac": w["stopped"][k], "tools/latency_s": 0.5,
        "tools/search/call_total": calls * (1 - w["bad"][k]),
        "tools/search/failure_total": calls * (1 - w["bad"][k]) * w["failures"][k],
        "tools/unknown_name_total": calls * w["bad"][k],
    }  # fmt: skip


def verl(w: World, k: int) -> dict[str, float]:
    """A row of verl with an agent loop."""
    return {
        "critic/score/mean": w["reward"][k], "critic/score/max": 1.0, "critic/score/min": 0.0,
        "critic/rewards/mean": w["reward"][k], "actor/entropy": w["entropy"][k], "actor/pg_loss": 0.01,
        "actor/grad_norm": w["grad_norm"][k], "actor/lr": 1e-6, "response_length/mean": w["length"][k],
        "response_length/max": w["longest"][k], "response_length/min": w["shortest"][k],
        "num_turns/mean": 2 * w["turns"][k], "num_turns/max": 2 * w["most"][k], "num_turns/min": 2.0,
        "tool_call_counts/mean": w["calls"][k], "agent_loop/tool_calls/mean": 0.4, "training/global_step": k + 1,
    }  # fmt: skip


def prime_rl(w: World, k: int) -> dict[str, float]:
    """A row of prime-rl's orchestrator."""
    whole, each = "train/agg/all", "train/agg/all/agent"
    ended = 1 - w["stopped"][k] - w["cut"][k] * (w["cut"][k] < 0.2)
    return {
        "step": k + 1, f"{whole}/num_total_tokens/mean": w["length"][k], f"{whole}/num_turns/mean": w["turns"][k],
        f"{whole}/num_turns/max": w["most"][k], f"{whole}/num_branches/mean": 1.0, f"{whole}/num_turns/min": 1.0,
        f"{whole}/has_error/mean": w["errors"][k], f"{each}/reward/mean": w["reward"][k],
        f"{each}/reward/max": 1.0, f"{each}/reward/min": 0.0, f"{each}/num_output_tokens/mean": w["length"][k],
        f"{each}/is_truncated/mean": w["cut"][k] * (w["cut"][k] < 0.2), f"{each}/solved_some": 0.7,
        f"{each}/solved_none": 0.2, f"{each}/solved_all": 0.1,
        f"{each}/stop_condition/max_turns_reached": w["stopped"][k], f"{each}/stop_condition/game_over": max(ended, 0),
    }  # fmt: skip


def skyrl(w: World, k: int) -> dict[str, float]:
    """A row of SkyRL."""
    return {
        "reward/avg_raw_reward": w["reward"][k], "loss/avg_final_rewards": w["reward"][k],
        "generate/avg_num_tokens": w["length"][k], "generate/min_num_tokens": w["shortest"][k],
        "generate/max_num_tokens": w["longest"][k], "generate/avg_assistant_tokens": w["length"][k],
        "generate/tokens_per_turn_mean": w["length"][k] / w["turns"][k], "policy/final_loss": 0.01,
        "policy/policy_entropy": w["entropy"][k], "policy/raw_grad_norm": w["grad_norm"][k], "policy/policy_lr": 1e-6,
        "trainer/global_step": k + 1,
    }  # fmt: skip


def nemo_rl(w: World, k: int) -> dict[str, float]:
    """A row of NeMo-RL with an environment."""
    truncated = w["cut"][k] * (w["cut"][k] < 0.2)
    return {
        "step": k + 1, "train/reward": w["reward"][k], "train/loss": 0.01, "train/grad_norm": w["grad_norm"][k],
        "train/lr": 1e-6, "train/approx_entropy": w["entropy"][k], "train/mean_gen_tokens_per_sample": w["length"][k],
        "train/token_mult_prob_error": 1.01, "train/avg_turns_per_sample": w["turns"][k],
        "train/max_turns_per_sample": w["most"][k], "train/max_turns_reached_rate": w["stopped"][k],
        "train/truncation_rate": truncated, "train/natural_termination_rate": 1 - w["stopped"][k],
        "train/mean_env_tokens_per_sample": 40 * w["calls"][k],
    }  # fmt: skip


def ms_swift(w: World, k: int) -> dict[str, float | str]:
    """A line of ms-swift with a multi-turn scheduler."""
    return {
        "loss": 0.01, "grad_norm": w["grad_norm"][k], "learning_rate": 1e-6, "reward": w["reward"][k],
        "reward_std": w["std"][k], "frac_reward_zero_std": 0.2, "completions/mean_length": w["length"][k],
        "completions/min_length": w["shortest"][k], "completions/max_length": w["longest"][k],
        "completions/clipped_ratio": w["cut"][k], "num_turns": w["turns"][k], "entropy/mean": w["entropy"][k],
        "global_step/max_steps": f"{k + 1}/{len(w['turns'])}", "elapsed_time": f"{k}m 3s", "train_speed(s/it)": 60.1,
    }  # fmt: skip


def roll(w: World, k: int) -> dict[str, float]:
    """The metrics of a step of ROLL's agentic pipeline."""
    return {
        "critic/score/mean": w["reward"][k], "critic/score/max": 1.0, "critic/score/min": 0.0,
        "critic/correct/mean": w["reward"][k], "critic/entropy/mean": w["entropy"][k],
        "token/response_length/mean": w["length"][k], "actor/total_loss": 0.01, "actor/pg_loss": 0.01,
        "actor/grad_norm": w["grad_norm"][k], "actor/lr": 1e-6, "env/Sokoban/num_actions": w["turns"][k],
        "env/Sokoban/success": w["reward"][k], "env/Sokoban/action_is_valid": 1 - w["bad"][k],
    }  # fmt: skip


ROWS: Mapping[str, Callable[[World, int], Mapping[str, object]]] = {
    "trl": trl, "trl async": trl_async, "verl": verl, "prime-rl": prime_rl, "skyrl": skyrl, "nemo-rl": nemo_rl,
    "ms-swift": ms_swift, "roll": roll,
}  # fmt: skip


def slime_lines(w: World) -> Iterator[str]:
    """What slime prints with --log-multi-turn."""
    for k in range(len(w["turns"])):
        rows: tuple[tuple[str, dict[str, float]], ...] = (
            ("rollout", {"rollout/raw_reward": w["reward"][k], "rollout/rewards": 0.0,
                         "rollout/response_lengths": w["length"][k],
                         "rollout/truncated": w["cut"][k] * (w["cut"][k] < 0.2)}),
            ("multi_turn", {"multi_turn/multi_turn_metric/round_number_mean": w["turns"][k],
                            "multi_turn/multi_turn_metric/round_number_max": w["most"][k],
                            "multi_turn/multi_turn_metric/round_number_min": 1.0}),
            ("step", {"train/loss": 0.01, "train/grad_norm": w["grad_norm"][k], "train/entropy_loss": w["entropy"][k],
                      "train/step": k}),
        )  # fmt: skip
        for name, row in rows:
            yield f"{name} {k}: { {key: float(value) for key, value in row.items()} }"


def written(folder: Path, trainer: str, world: World) -> Path:
    """The log of a world as a trainer writes it; its file."""
    if trainer == "slime":
        path = folder / "slime.log"
        path.write_text("\n".join(slime_lines(world)) + "\n")
        return path
    rows = [ROWS[trainer](world, k) for k in range(len(world["turns"]))]
    if trainer.startswith("trl"):
        path = folder / "trainer_state.json"
        path.write_text(json.dumps({"global_step": len(rows), "max_steps": len(rows), "logging_steps": 1,
                                    "log_history": rows}))  # fmt: skip
        return path
    path = folder / ("logging.jsonl" if trainer == "ms-swift" else "metrics.jsonl")
    if trainer == "verl":
        rows = [{"step": k + 1, "data": row} for k, row in enumerate(rows)]
    elif trainer == "roll":
        path = folder / "roll.log"
        lines = (f"[INFO] metrics_tag: {json.dumps({'step': k, 'metrics': row})}" for k, row in enumerate(rows))
        path.write_text("\n".join(lines) + "\n")
        return path
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


OF_AGENTS = {fault.name for fault in catalogue.by_family()["agents"]} | {ZEROS}


def present(trainer: str, kind: str, seed: int) -> tuple[set[str], set[str]]:
    """The faults that are present in a made log, and those of them that are a warning or worse."""
    rng = np.random.default_rng([seed, sum(map(ord, trainer + kind))])
    with tempfile.TemporaryDirectory() as folder:
        run = read(written(Path(folder), trainer, agent(rng, kind)))
    assert run.meta.engine == trainer.split()[0], run.meta.engine
    found = [finding for finding in diagnose(run) if finding.present]
    return {one.fault for one in found}, {one.fault for one in found if one.grade != "note"}


def table(seeds: int, trainers: Sequence[str]) -> Iterator[str]:
    """A line for each trainer: the share of each fault that is named, of healthy agents flagged, and what is said."""
    totals: Counter[str] = Counter()
    yield "| trainer | " + " | ".join((COLLAPSED, LOOPS, LIMIT, TOOLS, CALLS, ZEROS, CUT)) + " | healthy flagged |"
    yield "|---|" + "---|" * 8
    others: Counter[str] = Counter()
    for trainer in trainers:
        cells = []
        for fault in (COLLAPSED, LOOPS, LIMIT, TOOLS, CALLS, ZEROS, CUT):
            if fault not in CAN[trainer]:
                cells.append("–")
                continue
            named = sum(fault in present(trainer, fault, seed)[0] for seed in range(seeds))
            totals[fault] += named
            totals[f"{fault}, all"] += seeds
            cells.append(f"{named}/{seeds}")
        flagged = 0
        kinds = [kind for kind in HEALTHY if kind != "ended by environment" or CUT not in CAN[trainer]]
        for kind in kinds:
            for seed in range(seeds):
                every, bad = present(trainer, kind, 10_000 + seed)
                flagged += bool(every & OF_AGENTS)
                others.update(f"{trainer}, {kind}: {name}" for name in bad)
        totals["healthy"] += flagged
        totals["healthy, all"] += len(kinds) * seeds
        yield f"| {trainer} | " + " | ".join(cells) + f" | {flagged}/{len(kinds) * seeds} |"
    sums = [f"{totals[fault]}/{totals[f'{fault}, all']}" for fault in (COLLAPSED, LOOPS, LIMIT, TOOLS, CALLS, ZEROS,
                                                                        CUT)]  # fmt: skip
    yield "| **all** | " + " | ".join(sums) + f" | {totals['healthy']}/{totals['healthy, all']} |"
    yield ""
    yield "Warnings or worse on healthy agents: " + ("; ".join(f"{name} {k}" for name, k in others.items()) or "none")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trainers", nargs="*", default=list(CAN))
    given = parser.parse_args()
    for line in table(given.seeds, given.trainers):
        print(line, flush=True)
