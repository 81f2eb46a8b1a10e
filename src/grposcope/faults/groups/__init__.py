"""What goes wrong with groups of rollouts: too small, all alike, or divided by a spread that vanishes."""
