"""Where the policy went: its entropy, its distance from the start."""
