"""What the reward pays, and what became of it."""
