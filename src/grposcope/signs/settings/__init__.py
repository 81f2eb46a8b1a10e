"""What is seen of settings before a run: what several of them say together, for more than one fault."""
