"""Fixtures of the laboratory's tests."""

from tiny_policies import make_policy, policy

__all__ = ["make_policy", "policy"]
