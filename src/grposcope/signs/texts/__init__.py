"""What is seen of the texts of rollouts: what of them is paid, what changes over the steps, and which to read."""
