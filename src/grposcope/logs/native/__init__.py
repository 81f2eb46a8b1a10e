"""The record that the trainer writes: its schema and version, reading it and writing it."""
