"""Tokens behind the end of a completion have a weight in the loss.

What it is
    Padding with a mask of ones, or an end that is appended to completions that have one.
How it shows
    The mask is 1 behind the first token that ends a completion. In a log: the shortest, mean and longest completion of
    every step are one number.
What it does to the gradient
    Tokens that were never drawn get a gradient: padding is learned or unlearned, and means over tokens are diluted.
What to do
    Cut the mask behind the first end, and append no second one.
What decides
    Tokens and mask of one rollout that ended: grposcope verify FOLDER.
Sources
    MemGen #33, ends in place of padding: https://github.com/bingreeky/MemGen/pull/33
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.padded_lengths import TEST
from grposcope.signs.rollouts.claims import tokens

FAULT = Fault(
    name="trained beyond the end",
    rank=5.0,
    remedy="cut the mask behind the first token that ends the completion",
    beside="warning",
    log=TEST,
    rollouts=(tokens.PROOF,),
)
