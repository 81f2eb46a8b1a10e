"""What rollouts and weights show of a pipeline: its claims, each with the ways in which it could be broken."""
