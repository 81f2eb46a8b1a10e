"""How far updates of a training move the test whether rollouts are a policy's own (`instruments.gradient.retokenize`).

Rollouts of the model before a run, under the weights after 10, 20, … updates of it; under wrong temperatures; and with
the completions of the next prompt. A few minutes on one core.

    python experiments/rollouts_under_later_weights.py --steps 80 --out runs/later

Results, nats per token and z: `tiny`, 256 rollouts, one seed, under the first weights 0.003 ± 0.007, 0.4; after 10,
20, 40 and 80 updates at 4e-4 −0.055, −0.081, −0.135, −0.209, z from −8.5 to −38; taken for temperature 0.7 and 1.4
−0.07 and +0.09, z = −5.7 and 4.1; with the prompts of others −5.0, z = −326. SmolLM2-135M, 24 completions of 48
tokens on one-step sums: its own −0.04 ± 0.07, z = −0.5; taken for temperature 0.7 and 1.4 −1.4 and +1.8, z = −29 and
19; with the prompts of others −0.16, z = −2.2, since completions that hardly depend on the prompt cannot be told
apart. One of the 24 came back from its text in other tokens, by one token.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from grposcope.instruments.gradient.retokenize import _excess, _token_moments
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train


def line(what: str, policy: Policy, rollouts: RolloutBatch, temperature: float = 1.0) -> None:
    """Print the excess over the entropy and z of the rollouts under the policy."""
    estimate, z = _excess(_token_moments(policy.model, rollouts, temperature), rollouts.mask)
    print(f"{what:32} {estimate.value:8.4f} ± {estimate.se:.4f} nats per token, z = {z:7.1f}")


def main() -> None:
    """Train, and look at the first rollouts again with every checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--out", default="runs/later")
    given = parser.parse_args()
    train(TrainConfig(steps=given.steps, prompts=16, group=8, eval_problems=0, checkpoint_every=10, keep_checkpoints=0,
                      rollouts_every=0, threads=1, schedule="constant", warmup=0, out=given.out))  # fmt: skip
    task, policy = tasks.load("arithmetic", None), policies.load("tiny")
    sampling = Sampling(task.max_tokens)
    drawn = collect(policy, task, task.problems("train"), recipes.GRPO, sampling, (32, 8), 5, 0).rollouts
    line("its own", policy, drawn)
    for place in sorted((Path(given.out) / "checkpoints").glob("step-*")):
        line(f"after {int(place.name.removeprefix('step-'))} updates", policies.load(str(place / "model")), drawn)
    for temperature in (0.7, 1.4):
        line(f"taken for temperature {temperature}", policy, drawn, temperature)
    shifted = replace(drawn, prompt_ids=drawn.prompt_ids.roll(8, 0), prompt_mask=drawn.prompt_mask.roll(8, 0))
    line("completions of the next prompt", policy, shifted)


if __name__ == "__main__":
    main()
