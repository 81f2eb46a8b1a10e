"""The prompt of a turn is not the tokens of the turns before it.

What it is
    The conversation was turned into text and tokenised again, or the template rewrites earlier turns: it strips
    thinking, or renders calls of tools anew.
How it shows
    The ids of a turn's prompt leave those of the turns before it, although the prompt is as long. A compaction makes a
    much shorter one and is not meant here.
What it does to the gradient
    Trained as one row, tokens were drawn from another context than they are scored in; trained as rows, a trajectory
    falls apart into many.
What to do
    Hand token ids from turn to turn and append to them; use a template that keeps earlier turns as they were.
What decides
    The ids of two calls of one rollout: the first place at which they differ.
Sources
    verl #6854: https://github.com/verl-project/verl/issues/6854
    prime-rl #1334: https://github.com/PrimeIntellect-ai/prime-rl/issues/1334
    NeMo-RL #2821: https://github.com/NVIDIA-NeMo/RL/issues/2821
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import VERL_TURNS, of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import turns

MODE = "actor_rollout_ref.rollout.multi_turn.tokenization_sanity_check_mode"
TEMPLATE = "actor_rollout_ref.rollout.multi_turn.use_inference_chat_template"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Nothing compares the tokens of turns with those that are trained on, or a template may rewrite them."""
    if config.dialect.name == "prime-rl":
        yield from _by_messages(config)
    if not config.on(VERL_TURNS):
        return
    if config.on(TEMPLATE):
        yield fact(
            True,
            f"{TEMPLATE} renders every turn anew by the chat template, which may drop what earlier turns wrote, such "
            "as thinking: tokens are then scored in another context than they were drawn in",
            config.signs(TEMPLATE),
            grade="warning",
            brief="the template may rewrite earlier turns",
            remedy=f"set {TEMPLATE} to false",
        )
    elif config.get(MODE) == "disable":
        yield fact(
            True,
            f"{MODE} disable: nothing compares the tokens of the turns with those of the whole conversation",
            config.signs(MODE),
            grade="note",
            brief="turns that are tokenised anew would not be noticed",
            remedy=f"set {MODE} to strict or ignore_strippable, and run grposcope verify on a step of rollouts",
        )


def _by_messages(config: Settings) -> Iterator[Finding]:
    """Turns go to the server of prime-rl as messages and not as tokens."""
    key = of_prime_rl(config, "use_token_client")
    if config.off(key):
        yield fact(
            True,
            f"{key} false sends every turn as messages, which are rendered and tokenised anew: where that changes "
            "earlier tokens, a rollout falls apart into several rows",
            config.signs(key),
            grade="note",
            brief="turns are tokenised anew",
            remedy=f"set {key} to true where the chat template keeps earlier turns, and watch num_branches",
        )


FAULT = Fault(
    name="turns retokenised",
    rank=4.95,
    remedy="hand token ids from turn to turn and append to them; use a template that keeps earlier turns as they were",
    effect="tokens are scored in another context than they were drawn in",
    beside="warning",
    rollouts=(turns.PROOF,),
    settings=SettingsCheck(
        "turns retokenised",
        _settings,
        ("verl", "prime-rl"),
        "turns that a template may rewrite unnoticed",
        ("warning", "note"),
    ),
)
