"""On the same rollouts our loop and TRL give the same gradient, for every recipe that both have.

TRL's side is the whole way of `train --engine trl` on `tiny`: prompts, generation, grading, advantages, loss, several
forward passes, by TRL's own code with the arguments that the recipe is translated to. Ours takes the tokens that TRL
generated, grades them, takes the recipe's credit and makes the update of our loop. `-s` prints the errors by recipe.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grposcope.lab.credit import per_token
from grposcope.lab.objectives import ratios, recipes
from grposcope.lab.policies import encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.tasks import grade
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.update import TokenTerms, update

pytest.importorskip("trl")

from grposcope.engines.trl import run

PROMPTS, GROUP = 6, 4
WORST = 1e-5


@pytest.fixture(scope="module")
def errors() -> Any:
    """Relative errors by recipe, printed at the end."""
    found: dict[str, tuple[float, float]] = {}
    yield found
    for name, (first, second) in found.items():
        print(f"\n| {name} | {first:.1e} | {second:.1e} |", end="")


class Both:
    """A run of a recipe by TRL and by us, on the rollouts that TRL generates."""

    def __init__(self, folder: Path, recipe: str, interval: int, **more: Any) -> None:
        config = TrainConfig(
            recipe=recipe, prompts=PROMPTS, group=GROUP, interval=interval, micro_batch=8, clip_grad=0, out=str(folder),
            eval_problems=0, checkpoint_every=0, threads=1, temperature=1.3, **more,
        )  # fmt: skip
        self.setup, launch = run._prepared(config, {}, 1)
        self.options, self.left_out = launch.arguments, launch.left_out
        args, _ = run._configuration(launch, folder)
        self.trainer = run._trainer(self.setup, launch, args, None, [])
        self.model = self.setup.policy.model
        self.trainer.create_optimizer()
        self.generated = self._generate()
        self.before = frozen_logprobs(self.model, self.rollouts(), config.temperature, 64)

    def _generate(self) -> dict[str, Any]:
        """TRL's rollouts, in TRL's own form, before they are shuffled and split."""
        taken: dict[str, Any] = {}
        trainer, own = self.trainer, self.trainer._generate_and_score_completions

        def watched(inputs: Any) -> Any:
            out = own(inputs)
            taken.update({"problems": [row["problem"] for row in inputs]}, **copy.deepcopy(out))
            return out

        trainer._generate_and_score_completions = watched
        trainer.model.train()
        self.batch = next(iter(trainer.get_train_dataloader()))
        trainer._prepare_inputs(self.batch)
        del trainer._generate_and_score_completions
        return taken

    def rollouts(self) -> RolloutBatch:
        """The same tokens as ours, graded by us."""
        mine, setup = self.generated, self.setup
        problems = [setup.train_set[i] for i in mine["problems"]]
        mask = mine["completion_mask"].bool()
        texts = setup.policy.tokenizer.batch_decode(mine["completion_ids"], skip_special_tokens=True)
        rewards = torch.tensor(grade(setup.task, problems, texts), dtype=torch.float64).reshape(PROMPTS, GROUP)
        ids, ids_mask = encode(setup.policy, [p.prompt for p in problems], setup.task.instruction)
        assert torch.equal(ids, mine["prompt_ids"])
        assert torch.equal(ids_mask, mine["prompt_mask"].bool())
        empty = torch.zeros(mask.shape)
        return RolloutBatch(
            ids, ids_mask, mine["completion_ids"], mask, empty, empty, torch.zeros(len(mask)).bool(), rewards
        )

    def theirs(self) -> Tensor:
        """Gradient of a step of TRL over all its forward passes."""
        trainer = self.trainer
        trainer._step = 0 if self.fresh else trainer.args.steps_per_generation
        passes = trainer.args.gradient_accumulation_steps
        trainer.current_gradient_accumulation_steps = passes
        self.model.train().zero_grad()
        for _ in range(passes):
            inputs = trainer._buffered_inputs[trainer._step % trainer.args.steps_per_generation]
            trainer._step += 1
            trainer.compute_loss(trainer.model, inputs).backward()
        return flat(self.model.parameters())

    def ours(self) -> Tensor:
        """Gradient of a step of our loop."""
        setup, config, rollouts = self.setup, self.setup.config, self.rollouts()
        objective = replace(setup.objective, entropy=0.0)
        terms = TokenTerms(per_token(config.credit, objective, rollouts), None if self.fresh else self.before)
        kept = Kept(self.model.parameters(), lr=0.0)
        update(self.model, kept, objective, rollouts, terms, config.temperature, 0.0, 8)
        return kept.gradient

    fresh = True

    def error(self) -> float:
        """‖ours − theirs‖ / ‖theirs‖."""
        theirs, ours = self.theirs(), self.ours()
        assert float(theirs.norm()) > 1e-4
        return float((ours - theirs).norm() / theirs.norm())


def flat(parameters: Iterable[torch.nn.Parameter]) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None]).clone().double()


class Kept(torch.optim.SGD):
    """An optimiser that keeps the gradient of its last step, which `update` frees."""

    gradient: Tensor

    def step(self, closure: Any = None) -> Any:
        self.gradient = flat(self.param_groups[0]["params"])
        return super().step(closure)


ABSENT = {"rec_one_side", "opmd", "asymre"}
"""Recipes that TRL's loss cannot express, which are refused there."""


QUICK = {"grpo", "dapo", "gspo"}
"""Recipes that the default tests compare; CI compares all."""


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in sorted(recipes.ALL.keys() - recipes.DEFAULT_SETTINGS - ABSENT)
    ],
)
def test_the_gradient_is_that_of_trl(recipe: str, tmp_path: Path, errors: dict[str, tuple[float, float]]) -> None:
    """On fresh rollouts, and on the same ones after the weights have moved, where ratios and clips act."""
    reuse = 1 if recipes.ALL[recipe].ratio is ratios.none else 2
    both = Both(tmp_path, recipe, reuse)
    fresh = both.error()
    again = float("nan")
    if reuse > 1:
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in both.model.parameters():
                weight += 0.05 * weight.std() * torch.randn_like(weight)
        both.fresh = False
        again = both.error()
    errors[recipe] = (fresh, again)
    assert fresh < WORST
    assert not again >= WORST
