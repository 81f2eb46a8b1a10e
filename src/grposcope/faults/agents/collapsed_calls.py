"""The policy stops calling tools, or answers in one turn.

Asked as
    The agent stops calling its tools
    num_turns goes to 1
What it is
    A call costs tokens, a turn or a penalty, and pays only with what comes after it. Where calls of the first
    policy rarely pay, because they are malformed, the tool fails or the turn after them is not trained well, the
    gradient takes them away before they are learned.
How it shows
    Calls per rollout, or turns beyond the first, fall below a quarter of what they were.
What it does to the gradient
    Rollouts without calls are all alike: what a call would have paid is never seen again, so that training cannot
    find the way back by itself.
What to do
    Go back to before the fall. Fine-tune on traces with calls first, until calls pay, or pay a little for a call; give
    calls no cost of their own at first, and let giving up earn no more than trying; check that the loss does not
    divide by the tokens or turns of each rollout.
What decides
    E[reward | turns] among the rollouts before the fall: whether rollouts with calls were paid more.
Sources
    agent-lightning #489: https://github.com/microsoft/agent-lightning/issues/489
    verl #1569, a tool that is passed over: https://github.com/verl-project/verl/issues/1569
    verl #5375: https://github.com/verl-project/verl/issues/5375
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.checks.turns import of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.agents import COLLAPSE

PENALTY, UNSET = "algo.length_penalty.", 0.1
"""Settings of prime-rl's length penalty, and what its terms of turns and of the text of tools weigh where unset."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A penalty on length takes a part of the reward for turns, and for what tools answered."""
    kind = of_prime_rl(config, f"{PENALTY}type")
    names = [of_prime_rl(config, f"{PENALTY}{name}") for name in ("num_turns_weight", "num_input_tokens_weight")]
    if config.get(kind) != "linear" and not any(map(config.says, names)):
        return
    weights = [UNSET if not config.says(name) else config.number(name) for name in names]
    turns, heard = (0.0 if weight is None else weight for weight in weights)
    if turns > 0 or heard > 0:
        yield fact(
            True,
            f"{kind.removesuffix('.type')} takes up to {number(turns)} × the mean reward of the group from a rollout "
            f"for its turns and up to {number(heard)} × for its prompt and what tools answered, also from wrong ones: "
            "calls cost from the first step, before they pay",
            config.signs(kind, *names),
            grade="note",
            brief="turns and answers of tools cost reward",
            remedy=f"set {' and '.join(names)} to 0 until calls pay",
        )


FAULT = Fault(
    name="collapsed calls",
    rank=130,
    remedy="go back to before the fall, and fine-tune on traces with calls first, or pay a little for a call; check "
    "whether rollouts with calls were paid more, and whether the loss divides by the tokens or turns of each rollout",
    effect="what a call would have paid is no longer seen",
    beside="warning",
    log=COLLAPSE,
    settings=SettingsCheck("collapsed calls", _settings, ("prime-rl",), "turns that cost reward", ("note",)),
)
