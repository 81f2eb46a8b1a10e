"""Groups whose rewards do not differ."""
