"""Off-policy probes of a TRL run: what each correction would do, from the rollouts and log-probabilities TRL has.

With `vllm_importance_sampling_correction` a batch carries the log-probabilities that vLLM drew with, and is measured
when it is fresh. With num_iterations or steps_per_generation above what one step takes, a batch carries those of the
weights that drew it, and is measured right before its last optimiser step, where the weights have moved furthest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import TrainerCallback

from grposcope.core.errors import UserError
from grposcope.engines.trl import probing
from grposcope.engines.trl.processes import say
from grposcope.instruments import has
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths import corrections
from grposcope.maths.corrections import Correction

if TYPE_CHECKING:
    from grposcope.instruments.offpolicy.probe_file import Source

FORMS = {
    "token_truncate": "token_cap", "token_mask": "token_mask", "sequence_truncate": "sequence_cap",
    "sequence_mask": "sequence_mask",
}  # fmt: skip
"""TRL's vllm_importance_sampling_mode -> the form of a correction."""


class OffPolicyProbes(TrainerCallback):
    """Measures batches of a trainer whose rollouts are of another policy than its current weights."""

    def __init__(self, trainer: Any, prompts: int) -> None:
        self.trainer, self.prompts = trainer, prompts
        self.waiting: tuple[RolloutBatch, int, int] | None = None
        """Rollouts that are measured later, the step before which they were drawn, and that before which they are."""
        self.said = False

    def fresh(self, step: int, every: RolloutBatch, out: Mapping[str, Tensor]) -> None:
        """Measure the fresh batch of `step` by the probabilities of its sampler, or keep it for its last use."""
        self.waiting = None
        sampler, old = out.get("sampling_per_token_logps"), out.get("old_per_token_logps")
        at = step + probing.interval(self.trainer.args) - 1
        if sampler is None and (old is None or at == step):
            return
        if not (has("gradient") and has("offpolicy")):
            return
        if self.trainer.accelerator.num_processes > 1:
            if not self.said and self.trainer.accelerator.is_main_process:
                say("grposcope: corrections are not compared, because that needs a single process", logging.WARNING)
            self.said = True
            return
        from grposcope.instruments.offpolicy import probing as offpolicy

        wanted = min(self.prompts, len(every.rewards))
        reference_logp = sampler if sampler is not None else old
        assert reference_logp is not None
        few = offpolicy.whole_groups(offpolicy.drawn_by(every, reference_logp.detach()), wanted)
        if few is None:
            self._failed(step, UserError("too many groups have a rollout without a reward or without tokens"))
        elif sampler is not None:
            self._measure(step, offpolicy.drawn_by(few, few.logp), "sampler")
        else:
            self.waiting = few, step - 1, at

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure a batch that waits for its last optimiser step."""
        if self.waiting is None or state.global_step + 1 < self.waiting[-1]:
            return
        (waiting, drawn, at), self.waiting = self.waiting, None
        if state.global_step + 1 > at:
            return
        from grposcope.instruments.offpolicy import probing as offpolicy

        rollouts = offpolicy.drawn_by(waiting, waiting.logp, drawn)
        self._measure(at, rollouts, "earlier")

    def _measure(self, step: int, rollouts: RolloutBatch, source: Source) -> None:
        """Measure and write; a failure is said and does not end the training."""
        from grposcope.instruments.offpolicy import probe_file
        from grposcope.instruments.offpolicy import probing as offpolicy

        trainer = self.trainer
        folder: Path | None = trainer._scope_record.record_folder
        if folder is None:
            return
        args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
        try:
            with probing.plain(model):
                drawn, measured = offpolicy.measure(
                    model, rollouts, step, micro_batch=args.per_device_train_batch_size, temperature=args.temperature,
                    own=_own(args) if source == "sampler" else None, check=False,
                )  # fmt: skip
            prompts = max(rows // trainer.num_generations, 1)
            probe = probe_file.OffPolicyProbe(step, prompts, source, drawn, measured.products, measured.norms)
            probe_file.write(folder, probe)
        except Exception as error:
            self._failed(step, error)

    def _failed(self, step: int, error: Exception) -> None:
        said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        say(f"grposcope: step {step}: no comparison of corrections: {said}", logging.WARNING)
        logging.getLogger("grposcope").debug("the off-policy probe failed", exc_info=True)


def _own(args: Any) -> Correction | None:
    """The correction that TRL applies with these arguments; None where it is not one of ours."""
    form = FORMS.get(getattr(args, "vllm_importance_sampling_mode", ""))
    cap = getattr(args, "vllm_importance_sampling_clip_max", None)
    if cap is None:  # before TRL 1.0
        cap = getattr(args, "vllm_importance_sampling_cap", None)
    lower = getattr(args, "vllm_importance_sampling_clip_min", None)
    asked = getattr(args, "vllm_importance_sampling_correction", False)
    return None if not asked or form is None or cap is None or lower else corrections.named(f"{form}:{cap:g}")
