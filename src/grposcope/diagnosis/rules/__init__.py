"""The rules of the diagnosis, one file per failure mode."""
