"""Trainers whose logs are read: one file holds all that is known of an engine."""
