"""What a credit needs a model to say of every token: values of a critic, log π of a teacher, Σπ².

An annotator is made once, from the policy and the settings of the credit, and annotates every batch of rollouts before
the update that they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from grposcope.core.capabilities import COLLISION, CRITIC, FEEDBACK, TEACHER, Capability
from grposcope.core.errors import UserError
from grposcope.lab import policies
from grposcope.lab.credit import Chosen
from grposcope.lab.policies import encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import critic
from grposcope.lab.sampling.accumulate import collisions, frozen_logprobs
from grposcope.lab.sampling.annotation import AnnotationContext, Annotator, check_numbers
from grposcope.lab.sampling.critic import Critic
from grposcope.lab.tasks import Problem


def annotator(credit: Chosen, context: AnnotationContext) -> Annotator | None:
    """The annotator that a credit needs, None if it needs none; UserError where it cannot be made."""
    made = next((ANNOTATORS[need] for need in credit.source.needs if need in ANNOTATORS), None)
    return None if made is None else made(credit, context)


def _collision(credit: Chosen, context: AnnotationContext) -> Annotator:
    """Σπ² by a forward pass of the policy."""

    def annotated(rollouts: RolloutBatch, problems: Sequence[Problem]) -> RolloutBatch:
        squares = collisions(context.policy.model, rollouts, context.temperature, context.micro_batch)
        return rollouts.annotated(collision=squares)

    return annotated


def _values(credit: Chosen, context: AnnotationContext) -> Annotator:
    """A critic, as it was in a run, or one that has learned nothing yet."""
    made = Critic(context, credit.values)
    if context.learned is not None:
        critic.load(made, context.learned)
    return made


def _teacher(credit: Chosen, context: AnnotationContext) -> Annotator:
    """log π of a teacher; UserError where its tokens are not the policy's."""
    policy, name = context.policy, str(credit.values["model"])
    model = policy.model
    teacher = policies.load(name, model.dtype, str(model.device), context.remote_code)
    mine, others = policy.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if mine != others:
        different = next(token for token in {**others, **mine} if others.get(token) != mine.get(token))
        there, here = ("unknown" if token is None else f"token {token}" for token in (
            others.get(different), mine.get(different)))  # fmt: skip
        raise UserError(
            f"credit {credit.name}: the teacher {name} has another tokenizer than {policy.name} ({different!r} is "
            f"{there} there and {here} here); use a teacher of the same family"
        )
    teacher.model.requires_grad_(False)
    remedy = "the teacher's weights may be damaged, or its number format too narrow (dtype float32)"

    def annotated(rollouts: RolloutBatch, problems: Sequence[Problem]) -> RolloutBatch:
        logprobs = frozen_logprobs(teacher.model, rollouts, context.temperature, context.micro_batch)
        check_numbers(logprobs, rollouts, policy, f"the teacher {name}", remedy)
        return rollouts.annotated(other_logp=logprobs)

    return annotated


FEEDBACK_PROMPT = "The answer is {answer}.\n{prompt}"
"""The prompt of the policy as its own teacher."""


def _feedback(credit: Chosen, context: AnnotationContext) -> Annotator:
    """log π of the policy where its prompt tells the answer; UserError for problems without one."""
    policy = context.policy

    def annotated(rollouts: RolloutBatch, problems: Sequence[Problem]) -> RolloutBatch:
        silent = next((problem.id for problem in problems if not problem.answer), None)
        if silent is not None or len(problems) != len(rollouts.rewards):
            raise UserError(
                f"credit {credit.name} tells the policy the right answer, and problem {silent} has none; use a task "
                "whose problems have answers, or another credit"
            )
        told = [FEEDBACK_PROMPT.format(answer=problem.answer, prompt=problem.prompt) for problem in problems]
        ids, mask = encode(policy, told, context.instruction, rollouts.mask.shape[1])
        group = rollouts.groups[1]
        prompts: dict[str, Any] = {
            "prompt_ids": ids.repeat_interleave(group, 0),
            "prompt_mask": mask.repeat_interleave(group, 0),
        }
        logprobs = frozen_logprobs(policy.model, replace(rollouts, **prompts), context.temperature, context.micro_batch)
        check_numbers(logprobs, rollouts, policy, "the policy with feedback", "continue from an earlier checkpoint")
        return rollouts.annotated(other_logp=logprobs)

    return annotated


ANNOTATORS: dict[Capability, Callable[[Chosen, AnnotationContext], Annotator]] = {
    COLLISION: _collision,
    CRITIC: _values,
    TEACHER: _teacher,
    FEEDBACK: _feedback,
}
"""What a credit may need by MODEL_PASS -> what makes the annotator."""
