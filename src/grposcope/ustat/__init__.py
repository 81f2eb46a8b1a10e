"""How noisy the gradient is and how many rollouts a prompt is worth, from a Gram matrix of scores and the rewards.

moments     ζ₁, ζ₂, ‖g‖², Σ₁, Δ and V_p, unbiased, from one probe
mse         the mean-squared error of each gradient estimator at any number of prompts and group size
planning    the group size that a budget should buy, with its interval and what others lose
rewards     what reward logs alone can say
binomial    how many dead groups are to be expected of binary rewards
limit       the limit law of the suboptimality gap
classes, checks, resampling, subsets, gram_file    what these are made of
"""
