"""Time series of a run: one noise model (AR(1) plus white), and what stands out of it. NumPy and SciPy only."""
