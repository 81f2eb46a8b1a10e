"""An agent loop of verl that puts the rewards of steps on the tokens that end them; only imported where verl is."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PrivateAttr
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from grposcope.engines.verl import token_rewards


class _StepOutput(AgentLoopOutput):  # type: ignore[misc]
    """A rollout whose reward function may have returned rewards of steps beside the score."""

    _loop: Any = PrivateAttr(default=None)

    def as_dict(self) -> dict[str, Any]:
        """The fields that verl stores, `rm_scores` among them: by default the score on the last token."""
        credit_ = token_rewards.pop(self.extra_fields.get("reward_extra_info", {}))
        fields: dict[str, Any] = super().as_dict()
        if credit_ and "rm_scores" in fields:
            token_rewards.check(self._loop.config.algorithm.adv_estimator)
            rewards = token_rewards.token_rewards(credit_, self.reward_score, self.response_ids, self._text)
            fields["rm_scores"] = torch.tensor(rewards, dtype=torch.float32)
        return fields

    def _text(self, ids: Any) -> str:
        return str(self._loop.tokenizer.decode(ids, skip_special_tokens=True))


class StepRewardLoop(SingleTurnAgentLoop):  # type: ignore[misc]
    """verl's loop of one turn, with rewards of steps."""

    async def run(self, *arguments: Any, **named: Any) -> _StepOutput:
        """One rollout."""
        output = await super().run(*arguments, **named)
        copy = _StepOutput.model_construct(_fields_set=set(output.model_fields_set), **dict(output))
        copy._loop = self
        return copy
