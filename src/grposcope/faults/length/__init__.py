"""Lengths of completions, and the token limit."""
