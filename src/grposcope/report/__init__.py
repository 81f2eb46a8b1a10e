"""Rendering of runs and probes: the HTML page, its sections and charts, and text for the terminal."""
