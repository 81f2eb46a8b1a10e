"""What goes wrong with the length of completions: cut, grown, shrunk, or without room."""
