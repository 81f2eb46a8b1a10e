"""Experiments import what lies beside them."""

from __future__ import annotations

import sys

from places import ROOT

sys.path.append(str(ROOT / "experiments"))

from tiny_policies import make_policy, policy

__all__ = ["make_policy", "policy"]
