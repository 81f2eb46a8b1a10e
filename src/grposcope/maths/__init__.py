"""Maths."""
