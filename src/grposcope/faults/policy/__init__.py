"""What goes wrong with the policy: its entropy, and its distance to a reference."""
