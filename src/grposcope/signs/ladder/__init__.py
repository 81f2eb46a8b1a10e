"""A ladder for a flat run: what has to hold before a policy can learn, in order, answered from what is there."""
