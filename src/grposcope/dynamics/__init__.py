"""Dynamics of a run: where the reward is going, and what makes it blow up. NumPy and SciPy only.

oscillator  the closed form of the mean field: mass from momentum, damping, stiffness, lag
refresh     the exact map of one refresh cycle: stability, the largest stable interval, oscillation
sampled_refresh  the same where κ differs from batch to batch: second moments of a disturbance
noise       stationary covariance, autocovariance and spectrum under held sampling noise
bandit      softmax bandits in which all of it can be tested, batched over runs
fit         curves through a reward: fits, comparison on later steps, phases, forecasts
"""
