"""Name and question of the instrument, which its declaration and its answer share."""

NAME = "texts"

QUESTION = "What do the texts do that is paid?"
