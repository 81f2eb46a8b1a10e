"""How many rollouts does it take to find a fault of the sampler from its tokens, and what does its rounding hide?

Question Power of `grposcope verify`'s tests against the number of rollouts for five faults, against theory (a
         likelihood ratio grows by KL per rollout); and from which mismatch on staleness of one update is told from
         numerics.
Command  python experiments/verify_power.py --out runs/verify_power [--report]
Method   `tiny` is trained on arithmetic for 8 steps of 16 × 8 (AdamW, 4e-4, seed 0), a checkpoint a step. The policy is
         that of step 8 (π). Each faulty sampler draws 128 prompts × 8 completions of up to 16 tokens, temperature 1:
         stale by 1 and by 4 updates; temperature 0.9; top-k 3; half of the tensors as before training; π rounded to
         int8. All are scored under steps 0, 4, 7 and 8. Power: the share of 200 random subsets of prompts, of 16 to
         1,024 rollouts, in which p ≤ 0.05/3 by tokens alone (three claims share the error), with float32's tolerance.
         Theory: log e is normal with mean nκ and variance 2nκ, κ the KL per rollout as measured on all rollouts, and
         must exceed ln 60 + ln(alternatives). Then numerics: a sampler with the weights π − λ(π − π₇), λ from 0.1 to
         10, draws 64 × 8 in float32, bfloat16 and int8: staleness from tokens alone with the format's tolerance, and
         from recorded log-probabilities (the paired distance), and the cosine between the rounding error and the
         staleness, over tokens.
Rule     Written before the first run. (1) Power at nκ ≥ 15 nats is at least 0.9 for the four faults with an alternative
         of their own (stale by 1 and 4, temperature, top-k). (2) There the fault is named rightly in at least 0.8 of
         the subsets in which it is found. (3) Measured and theoretical power are within 0.15 of one another for stale
         samplers where nκ is between 5 and 30. (4) An int8 sampler is called faulty in at most 0.05 of the subsets of
         any size with int8's tolerance. (5) |cosine| ≤ 0.1 (`numerics.ALIGNED` when it was run) wherever staleness is
         at least 1e-6 nats per token. (6) From recorded log-probabilities the staleness of one update (λ = 1) is told
         from rounding with p ≤ 0.01 in all three formats. Half of the adapters has no rule: no alternative is made of
         it.
Budget   Under 10 minutes of two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy.special import ndtr

from grposcope.core.files import write_json
from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import drawn_tokens, numerics, scoring
from grposcope.instruments.verify.claims import checkpoints, sampling, weights
from grposcope.instruments.verify.evidence import PipelineEvidence, Stated
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.maths import evalues

STEPS, NOW = 8, 8
SCORED = (0, 4, 7, 8)
SIZES = (16, 32, 64, 128, 256, 512, 1024)
SUBSETS, GROUP = 200, 8
LEVEL = 0.05 / 3
SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)


def trained(out: Path) -> dict[int, str]:
    """Folder of the model at each scored step."""
    if not (out / "run" / "checkpoints").is_dir():
        flags = ("--steps", STEPS, "--prompts", 16, "--group", GROUP, "--checkpoint-every", 1, "--keep-checkpoints", 0,
                 "--eval-problems", 0, "--threads", 1, "--out", out / "run")  # fmt: skip
        subprocess.run([sys.executable, "-m", "grposcope", "train", *map(str, flags)], check=True, capture_output=True)
    folders = {step: str(out / "run" / "checkpoints" / f"step-{step:06d}" / "model") for step in SCORED if step}
    return {**folders, 0: "tiny", NOW: str(out / "run" / "model")}  # a run's last model is no checkpoint


def drawn(policy: Policy, settings: Sampling, prompts: int, seed: int) -> tuple[Rollout, ...]:
    """Rollouts of a sampler, as of the step after NOW."""
    task = tasks.load("arithmetic", None)
    batch = collect(policy, task, task.problems("train"), recipes.GRPO, settings, (prompts, GROUP), seed, 0).rollouts
    rows = zip(batch.prompt_ids, batch.prompt_mask, batch.tokens, batch.mask, batch.logp, strict=True)
    return tuple(
        Rollout(f"row {i}", NOW + 1, str(i // GROUP), prompt_ids=prompt[seen].numpy(),
                    completion_ids=ids[kept].numpy(), sampler=logp[kept].double().numpy())
        for i, (prompt, seen, ids, kept, logp) in enumerate(rows)
    )  # fmt: skip


def between(first: Policy, last: Policy, share: float, some: bool = False) -> Policy:
    """A copy of `last` moved towards `first` by a share of their difference; some: every second tensor alone."""
    made = policies.load("tiny")
    with torch.no_grad():
        every = zip(made.model.parameters(), first.model.parameters(), last.model.parameters(), strict=True)
        for number, (own, before, after) in enumerate(every):
            own.copy_(after + (share if not some or number % 2 else 0.0) * (before - after))
    return made


def increments(evidence: PipelineEvidence, precision: str) -> dict[str, Any]:
    """Log likelihood ratios of each row by the two tests of tokens, with the tolerance of a precision."""
    rows, allowed = drawn_tokens.rows_of(evidence), numerics.of(precision)
    stated, tokens = np.array([row.checkpoint for row in rows]), np.array([float(row.kept.sum()) for row in rows])
    sums, squares = checkpoints.log_likelihoods(evidence, rows)
    paths = checkpoints.paths(stated, len(evidence.scored))
    writers = np.stack([checkpoints.ratios(sums, squares, tokens, stated, path, allowed) for path in paths])
    return {
        "paths": paths, "writers": writers, "sampling": sampling.sums(evidence, rows, allowed).ratios,
        "groups": np.array([int(evidence.rows[row.place].group or 0) for row in rows]), "sums": sums, "tokens": tokens,
    }  # fmt: skip


PRIOR = sampling._PRIOR


def power(found: dict[str, Any], names: tuple[str, ...], seed: int) -> list[dict[str, float]]:
    """By number of rollouts: share of subsets with either test below LEVEL, and of those the share named rightly."""
    random, out = np.random.default_rng(seed), []
    prompts = int(found["groups"].max()) + 1
    for size in SIZES:
        hits, named = 0, 0
        for _ in range(SUBSETS):
            chosen = np.flatnonzero(np.isin(found["groups"], random.choice(prompts, size // GROUP, replace=False)))
            by_writer = evalues.mixture(found["writers"][:, chosen])
            by_sampling = evalues.mixture(found["sampling"][:, chosen], PRIOR)
            p = min(by_writer.p, by_sampling.p)
            hits += p <= LEVEL
            if p <= LEVEL:
                if by_writer.p < by_sampling.p:
                    path = found["paths"][by_writer.best]
                    name = f"writer {path.writers[0]}"
                else:
                    name = sampling.ALTERNATIVES[by_sampling.best].kind
                named += name in names
        out.append({"rollouts": size, "power": hits / SUBSETS, "named": named / hits if hits else math.nan})
    return out


def faults(out: Path) -> dict[str, Any]:
    """Power for each fault."""
    models = {step: policies.load(folder) for step, folder in sorted(trained(out).items())}
    now = models[NOW]
    samplers = {
        "none": (now, Sampling(16), (), "float32"),
        "stale by 1": (models[7], Sampling(16), ("writer 2",), "float32"),
        "stale by 4": (models[4], Sampling(16), ("writer 1",), "float32"),
        "temperature 0.9": (now, Sampling(16, 0.9), ("temperature",), "float32"),
        "top-k 3": (now, Sampling(16, top_k=3), ("top-k",), "float32"),
        "half of the tensors": (between(models[0], now, 1.0, True), Sampling(16), ("writer 0", "writer 1"), "float32"),
        "int8": (now, Sampling(16, precision="int8"), (), "int8"),
    }
    results: dict[str, Any] = {}
    for number, (name, (policy, settings, names, precision)) in enumerate(samplers.items()):
        rows = drawn(policy, settings, max(SIZES) // GROUP, 100 + number)
        scored = tuple(scoring.score(models[step], rows, 1.0, f"step {step}", step) for step in SCORED)
        evidence = PipelineEvidence(name, rows=rows, scored=scored, stated=Stated(precision=precision))
        found = increments(evidence, precision)
        plain = np.concatenate([weights.k3(own - row.sampler) for own, row in zip(scored[-1].logp, rows, strict=True)])
        kl = _divergence(found, evidence, name)
        results[name] = {
            "kl": kl[0], "kl_se": kl[1], "k3_recorded": float(plain.mean()), "tokens": float(found["tokens"].mean()),
            "power": power(found, names, number), "paths": len(found["paths"]),
        }  # fmt: skip
        print(name, json.dumps(results[name]), flush=True)
    return results


def _divergence(found: dict[str, Any], evidence: PipelineEvidence, name: str) -> tuple[float, float]:
    """KL(sampler‖π) per rollout in nats and its standard error: the mean of its log likelihood ratios."""
    own = np.array([one.sum() for one in evidence.scored[-1].logp])
    if name == "temperature 0.9":
        place = sampling.POWERS.index(1.1)
        powers = np.array([one[:, place].sum() for one in evidence.scored[-1].log_powers])
        ratio = 0.1 * own - powers
    elif name == "top-k 3":
        place = sampling.ALTERNATIVES.index(sampling.SamplerAlternative("top-k", 3, 0.0))
        ratio = found["sampling"][place]
    else:
        ratio = np.array([row.sampler.sum() for row in evidence.rows if row.sampler is not None]) - own
    return float(ratio.mean()), float(ratio.std() / math.sqrt(len(ratio)))


def rounding(out: Path) -> list[dict[str, Any]]:
    """Staleness of λ updates under each number format."""
    models = {step: policies.load(folder) for step, folder in sorted(trained(out).items())}
    now, results = models[NOW], []
    for number, scale in enumerate(SCALES):
        writer = between(models[7], now, scale)
        for precision in numerics.FORMATS:
            if precision == "fp8":
                continue
            rows = drawn(writer, Sampling(16, precision=precision), 64, 500 + number)
            scored = (scoring.score(writer, rows, 1.0, "writer", NOW - 1), scoring.score(now, rows, 1.0, "now", NOW))
            evidence = PipelineEvidence(precision, rows=rows, scored=scored, stated=Stated(precision=precision))
            found = increments(evidence, precision)
            by_tokens = evalues.mixture(found["writers"])
            recorded = checkpoints._by_recorded(evidence, drawn_tokens.rows_of(evidence), found["paths"])
            error = np.concatenate([row.sampler - one for row, one in zip(rows, scored[0].logp, strict=True)])
            moved = np.concatenate([a - b for a, b in zip(scored[0].logp, scored[1].logp, strict=True)])
            results.append({
                "scale": scale, "precision": precision, "numerics": float(weights.k3(-error).mean()),
                "staleness": float(weights.k3(-moved).mean()), "nats": float(moved.sum()),
                "p_tokens": by_tokens.p, "p_recorded": recorded.p if recorded is not None else math.nan,
                "cosine": float((error * moved).sum() / math.sqrt((error**2).sum() * (moved**2).sum())),
            })  # fmt: skip
            print(json.dumps(results[-1]), flush=True)
    return results


def theory(kl: float, size: int, alternatives: int) -> float:
    """Power of a likelihood ratio that grows by kl nats per rollout."""
    gained = size * kl
    bar = math.log(1 / LEVEL) + math.log(max(alternatives, 1))
    return float(ndtr((gained - bar) / math.sqrt(2 * gained))) if gained > 0 else 0.0


def picture(table: Path, path: Path) -> None:
    """Power against nats, of the table of recorded results, beside what theory says for as many alternatives."""
    import altair as alt

    rows = []
    for line in table.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        found = re.match(r"[\d.]+", cells[1]) if len(cells) == len(SIZES) + 2 else None
        if found is None or "(" not in cells[2]:
            continue
        for size, cell in zip(SIZES, cells[2:], strict=True):
            measured, expected = map(float, re.findall(r"[\d.]+", cell))
            nats = size * float(found[0])
            rows += [{"fault": cells[0], "nats": nats, "power": measured, "what": "measured"},
                     {"fault": cells[0], "nats": nats, "power": expected, "what": "theory"}]  # fmt: skip
    x = alt.X("nats:Q", scale=alt.Scale(type="log"), title="KL per rollout × rollouts, nats")
    y = alt.Y("power:Q", title="faults found")
    chart = alt.Chart(alt.Data(values=rows)).encode(x, y, alt.Color("fault:N", title=None))
    lines = chart.mark_line(strokeDash=[4, 3], opacity=0.6).transform_filter("datum.what == 'theory'")
    points = chart.mark_point(filled=True, size=45).transform_filter("datum.what == 'measured'")
    rule = alt.Chart(alt.Data(values=[{"nats": 15}])).mark_rule(color="gray").encode(x="nats:Q")
    (lines + points + rule).properties(width=520, height=260).save(str(path), ppi=110)


def report(results: dict[str, Any]) -> None:
    """Tables and verdicts by the rules."""
    print("\n| fault | KL per rollout | " + " | ".join(map(str, SIZES)) + " | named |")
    print("|---|---|" + "---|" * (len(SIZES) + 1))
    verdicts: dict[str, list[bool]] = {name: [] for name in ("1", "2", "3", "4")}
    ruled = ("stale by 1", "stale by 4", "temperature 0.9", "top-k 3")
    for name, one in results["faults"].items():
        cells = []
        for row in one["power"]:
            gained, expected = row["rollouts"] * one["kl"], theory(one["kl"], row["rollouts"], one["paths"])
            cells.append(
                f"{row['power']:.2f} ({expected:.2f})" if name not in ("none", "int8") else f"{row['power']:.3f}"
            )
            if name in ruled and gained >= 15:
                verdicts["1"].append(row["power"] >= 0.9)
                verdicts["2"].append(float(row["named"]) >= 0.8)
            if name.startswith("stale") and 5 <= gained <= 30:
                verdicts["3"].append(abs(row["power"] - expected) <= 0.15)
            if name in ("none", "int8"):
                verdicts["4"].append(row["power"] <= 0.05)
        last = float(one["power"][-1]["named"])
        print(f"| {name} | {one['kl']:.2g} ± {one['kl_se']:.1g} | {' | '.join(cells)} | {last:.2f} |")
    print("\n| λ | format | numerics | staleness | log ratio, nats | p, tokens | p, recorded | cosine |")
    print("|---|---|---|---|---|---|---|---|")
    for row in results["rounding"]:
        print(f"| {row['scale']:g} | {row['precision']} | {row['numerics']:.1e} | {row['staleness']:.1e} | "
              f"{row['nats']:.2f} | {row['p_tokens']:.2g} | {row['p_recorded']:.1g} | {row['cosine']:+.3f} "
              f"|")  # fmt: skip
    five = [abs(row["cosine"]) <= 0.1 for row in results["rounding"] if row["staleness"] >= 1e-6]
    six = [row["p_recorded"] <= 0.01 for row in results["rounding"] if row["scale"] == 1.0]
    for rule, held in {**verdicts, "5": five, "6": six}.items():
        print(f"rule ({rule}): {sum(held)} of {len(held)} cells: {'holds' if held and all(held) else 'fails'}")


def main() -> None:
    """Run, or print what is there."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", default="runs/verify_power")
    flags.add_argument("--report", action="store_true")
    flags.add_argument("--picture", type=Path, help="draw the recorded power of experiments/verify.md into this file")
    arguments = flags.parse_args()
    if arguments.picture is not None:
        picture(Path(__file__).with_suffix("").with_name("verify.md"), arguments.picture)
        return
    out = Path(arguments.out)
    if not arguments.report:
        out.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        write_json(out / "results.json", {"faults": faults(out), "rounding": rounding(out)})
    report(json.loads((out / "results.json").read_text()))


if __name__ == "__main__":
    main()
