"""Other trainers: what GRPOscope adds to a run of theirs. Each is imported by its own name, only when it is used."""
