"""What goes wrong with the reward: what it pays for, and what each of several rewards weighs."""
