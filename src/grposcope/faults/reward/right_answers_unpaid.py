"""Texts that give the right answer are paid as if they gave none.

Asked as
    All rewards are 0 although the model answers correctly
What it is
    The grader does not find the answer in the text: a rubric without its parser, another mark of answers than the
    prompt asks for, an answer column in another form, tokens that are lost when text is decoded. Or it is given the
    answer of another prompt (rows that are shuffled beside their index), or of another column (the input of a function
    for its output).
How it shows
    Texts mark the answer that the data set has beside the prompt, and have the least score there is. Or the rollouts of
    nearly every prompt agree on an answer that is not the data set's, that none of them gives and that is not paid.
What it does to the gradient
    No group differs by what is right; what is left of the reward (format, length) is all that is learned.
What to do
    Grade one such text by hand, with its row of the data set, and print what the grader takes for the answer; pass it
    the parser of the marks that the prompt asks for.
What decides
    The grader on one right text: grposcope verify FOLDER --reward rewards.py:FUNCTION.
Sources
    verifiers #277: https://github.com/PrimeIntellect-ai/verifiers/issues/277
    open-instruct #1484, answers of other prompts: https://github.com/allenai/open-instruct/pull/1484
    genesys #56, the input for the answer: https://github.com/PrimeIntellect-ai/genesys/issues/56
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.texts.right_answers import REMEDY

FAULT = Fault(
    name="right answers unpaid",
    rank=5.9,
    remedy=REMEDY,
    effect="right answers are not learned",
    beside="failing",
    rollouts=(texts.PROOF,),
)
