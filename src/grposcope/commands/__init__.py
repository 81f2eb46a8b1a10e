"""The commands of `grposcope`, a file each: `add` declares the flags, `run` does the work."""
