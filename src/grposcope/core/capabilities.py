"""What the parts of a run need of each other and provide, and the one sentence that refuses parts that do not fit.

A part is a source of credit, an allocator, an objective, a task, an engine or a setting. It declares capabilities, and
names no other part: `refusal` finds what is needed and not there, and says which part lacks it and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from grposcope.core.errors import UserError


@dataclass(frozen=True)
class Capability:
    """Something that one part of a run needs and another provides. words: as a message says it, "needs …".

    by: what it comes by: whoever provides that provides this, and whoever lacks that lacks this.
    """

    words: str
    by: Capability | None = None


PAIRS = Capability("groups of 2 or more rollouts to compare")
ONE_SIZE = Capability("groups of one size")
UNEVEN = Capability("room for groups that lose rollouts")
WHOLE_GROUPS = Capability("groups without gaps")
INDEPENDENT = Capability("rollouts of a group that are independent")
MINIBATCHES = Capability("batches of a fixed number of groups")
ONE_PROCESS = Capability("one process")
CHOICE = Capability("the choice of which groups are kept")

ADVANTAGE = Capability("a credit that spreads an advantage")
SUMMED_REWARDS = Capability("rewards that are added up and compared as they are")
TOKEN_WEIGHTS = Capability("a loss that weighs single tokens")

STEP_ENDS = Capability("a task that labels steps, such as arithmetic")
STEP_REWARDS = Capability("a task that labels steps, such as arithmetic", by=STEP_ENDS)
STEP_MARK = Capability("a task with a text that closes steps, such as arithmetic")
STEP_READER = Capability("a credit that reads the rewards of steps")
TURNS = Capability("a task with turns, such as hidden_table")
ENTROPY = Capability("the policy's entropy at every token")

FURTHER_ROLLOUTS = Capability("more than a group of rollouts for each prompt")
CONTINUATIONS = Capability("continuations of its rollouts", by=FURTHER_ROLLOUTS)
TURN_VALUES = Capability("continuations from the state before each turn", by=FURTHER_ROLLOUTS)
TREES = Capability("rollouts that branch as trees", by=FURTHER_ROLLOUTS)

MODEL_PASS = Capability("a further pass of a model over every batch")
COLLISION = Capability("Σπ² of every token", by=MODEL_PASS)
CRITIC = Capability("the values of a critic", by=MODEL_PASS)
TEACHER = Capability("the log-probabilities of a teacher", by=MODEL_PASS)
FEEDBACK = Capability("the policy's log-probabilities once it is told the answer", by=MODEL_PASS)

LOWER_CLIP = Capability("a lower clip of CISPO")
WEIGHTED_KL = Capability("a KL term that is multiplied by the ratio")

Capabilities = frozenset[Capability]


def factor(kind: str, option: object) -> Capability:
    """A factor of an objective, such as the surrogate Clip, which an engine's loss has or has not."""
    return Capability(f"the {kind} {getattr(option, '__name__', option)}")


Comparison = Literal["leave-one-out", "standardized", "dead groups replaced", "no group", "unknown"]
"""How advantages compare the rollouts of a group, as far as the theory of the best group size can tell them apart."""


@dataclass(frozen=True)
class Lack:
    """Why a part has a capability not, nor lets others provide it: a verb with what follows, and the remedy."""

    why: str
    remedy: str


@dataclass(frozen=True)
class Part:
    """One part of a run. name: as a message says it, its field and value. remedy: what to do in its place.

    needs: what must be there. provides: what it brings. lacks: what it takes from the run, and why.
    """

    name: str
    remedy: str = ""
    needs: Capabilities = frozenset()
    provides: Capabilities = frozenset()
    lacks: Mapping[Capability, Lack] = field(default_factory=dict)


def _refusal(*parts: Part) -> str:
    """Why these parts do not make a run, in one line with the remedies; empty where they do.

    What is needed and provided by nobody is what the first part, the engine, does not provide.
    """
    provided = {capability for part in parts for capability in part.provides}
    for part in parts:
        for wanted in sorted(part.needs, key=lambda capability: capability.words):
            for other in parts:
                if (lacked := _among(wanted, other.lacks)) is not None:
                    lack = other.lacks[lacked]
                    return _sentence(part, lacked, f"{other.name} {lack.why}", lack.remedy or other.remedy)
            if _among(wanted, provided) is None:
                ground = parts[0]
                return _sentence(part, wanted, f"{ground.name} does not provide it", ground.remedy)
    return ""


def check(*parts: Part) -> None:
    """UserError with the `refusal` of the parts, if there is one."""
    if said := _refusal(*parts):
        raise UserError(said)


def _among(wanted: Capability, capabilities: Collection[Capability]) -> Capability | None:
    """The capability, or what it comes by, if that is among the known ones."""
    return next(
        (capability for capability in (wanted, wanted.by) if capability is not None and capability in capabilities),
        None,
    )


def _sentence(part: Part, wanted: Capability, lacking: str, remedy: str) -> str:
    remedies = list(dict.fromkeys(text for text in (part.remedy, remedy) if text))
    return f"{part.name} needs {wanted.words}, and {lacking}; {', or '.join(remedies)}"
