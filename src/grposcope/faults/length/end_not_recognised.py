"""Completions are counted as cut although they ended: the trainer looks for another end token than the model writes.

Asked as
    clipped_ratio is near 1 from the first step, but completions look finished
What it is
    The chat template ends a turn with a token that is not the tokenizer's eos_token (as <|end|> or <end_of_turn>), or
    an environment ended the episode. The engine stops there; the trainer counts what lacks its one end token as cut.
How it shows
    The mean length is far below the share that is counted as cut times the longest completion. Cut ones would all be
    as long as the limit.
What it does to the gradient
    With mask_truncated_completions nearly everything is dropped. Without it only the count is wrong, and lengths of
    terminated completions with it.
What to do
    Set the tokenizer's eos_token to the token that ends a turn, or give the trainer every end token of the generation
    config; do not raise the limit, and do not mask cut completions before that.
What decides
    The last token of ten completions that are counted as cut, against tokenizer.eos_token_id.
Sources
    TRL #7039: https://github.com/huggingface/trl/pull/7039
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.counted_as_cut import TEST

FAULT = Fault(
    name="end not recognised",
    rank=54,
    remedy="set the tokenizer's eos_token to the token that ends a turn of this model, or give the trainer every end "
    "token; the token limit is not what ends them",
    effect="the count of cut completions is wrong, and masking them would drop most of the batch",
    beside="warning",
    instead="warning",
    log=TEST,
)
