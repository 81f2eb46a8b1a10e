"""Noise of the policy gradient, and how many rollouts per prompt to draw, from a Gram matrix of scores and rewards.

moments     ζ₁, ζ₂, ‖g‖², Σ₁, Δ and V_p, unbiased, from one probe
mse         the mean-squared error of each gradient estimator at any number of prompts and group size
planning    the group size that a budget should buy, with its interval and what others lose
dead_groups how many groups are dead, how many chance explains, and how many at another group size, from rewards alone
limit       the limit law of the suboptimality gap
standardized, gram_checks, resampling    what these are made of
"""
