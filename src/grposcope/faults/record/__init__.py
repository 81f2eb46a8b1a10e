"""What goes wrong with the record: numbers that are not finite, or not what their name says."""
