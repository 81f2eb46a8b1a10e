"""Checks of settings that tell several faults apart, and what they are made of."""
