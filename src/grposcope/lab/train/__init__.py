"""The laboratory: a small, exact GRPO trainer for one machine."""

__all__ = ["config", "loop"]
