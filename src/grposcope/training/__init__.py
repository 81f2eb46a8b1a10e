"""The laboratory: a small, exact GRPO trainer for one machine."""
