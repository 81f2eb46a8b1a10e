"""Clocks by which runs are held against each other: optimiser steps, tokens, or seconds since the first row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Clock = Literal["step", "tokens", "time"]

UNITS: Mapping[Clock, str] = {"step": "step", "tokens": "token", "time": "second"}
"""Clock -> what it counts."""
