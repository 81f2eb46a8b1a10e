"""Faults of rollouts with turns: calls of tools, the environment that answers them, and how long trajectories weigh."""
