"""What a credit needs of every token that a model must supply: values of a critic, log π of a teacher, Σπ².

`SUPPLIES` names them as `CreditSource.needs` does. A supply is made once, from the policy and the settings of the
credit, and asked for every batch of rollouts, before the update that they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grposcope import policies
from grposcope.credit import Chosen
from grposcope.errors import UserError
from grposcope.policies import encode
from grposcope.records import Rollouts
from grposcope.tasks import Problem
from grposcope.training import critic
from grposcope.training.accumulate import collisions, frozen_logprobs
from grposcope.training.critic import Critic
from grposcope.training.supply import Supply, Surroundings, check_numbers


def supply(credit: Chosen, around: Surroundings) -> Supply | None:
    """The supply that a credit needs, None if it needs none; UserError where it cannot be made."""
    return SUPPLIES[credit.source.needs](credit, around) if credit.source.needs else None


def _collision(credit: Chosen, around: Surroundings) -> Supply:
    """Σπ² by a forward pass of the policy."""

    def supplied(rollouts: Rollouts, problems: Sequence[Problem]) -> Rollouts:
        found = collisions(around.policy.model, rollouts, around.temperature, around.micro_batch)
        return replace(rollouts, collision=found)

    return supplied


def _values(credit: Chosen, around: Surroundings) -> Supply:
    """A critic, as it was in a run, or one that has learned nothing yet."""
    made = Critic(around, credit.values)
    if around.learned is not None:
        critic.load(made, around.learned)
    return made


def _teacher(credit: Chosen, around: Surroundings) -> Supply:
    """log π of a teacher; UserError where its tokens are not the policy's."""
    policy, name = around.policy, str(credit.values["model"])
    model = policy.model
    teacher = policies.load(name, model.dtype, str(model.device), around.remote_code)
    mine, others = policy.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if mine != others:
        different = next(token for token in {**others, **mine} if others.get(token) != mine.get(token))
        there, here = ("unknown" if found is None else f"token {found}" for found in (
            others.get(different), mine.get(different)))  # fmt: skip
        raise UserError(
            f"credit {credit.name}: the teacher {name} has another tokenizer than {policy.name} ({different!r} is "
            f"{there} there and {here} here); use a teacher of the same family"
        )
    teacher.model.requires_grad_(False)
    remedy = "the teacher's weights may be damaged, or its number format too narrow (dtype float32)"

    def supplied(rollouts: Rollouts, problems: Sequence[Problem]) -> Rollouts:
        found = frozen_logprobs(teacher.model, rollouts, around.temperature, around.micro_batch)
        check_numbers(found, rollouts, policy, f"the teacher {name}", remedy)
        return replace(rollouts, other_logp=found)

    return supplied


FEEDBACK = "The answer is {answer}.\n{prompt}"
"""The prompt of the policy as its own teacher."""


def _feedback(credit: Chosen, around: Surroundings) -> Supply:
    """log π of the policy where its prompt tells the answer; UserError for problems without one."""
    policy = around.policy

    def supplied(rollouts: Rollouts, problems: Sequence[Problem]) -> Rollouts:
        silent = next((problem.id for problem in problems if not problem.answer), None)
        if silent is not None or len(problems) != len(rollouts.rewards):
            raise UserError(
                f"credit {credit.name} tells the policy the right answer, and problem {silent} has none; use a task "
                "whose problems have answers, or another credit"
            )
        told = [FEEDBACK.format(answer=problem.answer, prompt=problem.prompt) for problem in problems]
        ids, mask = encode(policy, told, around.instruction, rollouts.mask.shape[1])
        group = rollouts.groups[1]
        prompts = {"prompt_ids": ids.repeat_interleave(group, 0), "prompt_mask": mask.repeat_interleave(group, 0)}
        found = frozen_logprobs(policy.model, replace(rollouts, **prompts), around.temperature, around.micro_batch)
        check_numbers(found, rollouts, policy, "the policy with feedback", "go on from an earlier checkpoint")
        return replace(rollouts, other_logp=found)

    return supplied


SUPPLIES: dict[str, Callable[[Chosen, Surroundings], Supply]] = {
    "collision": _collision,
    "values": _values,
    "teacher": _teacher,
    "feedback": _feedback,
}
"""Name in `CreditSource.needs` -> what makes the supply."""
