"""A claim of a pipeline a file: its PROOF, which files of faults name."""
