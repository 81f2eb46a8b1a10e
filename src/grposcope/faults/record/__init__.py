"""What the log says that cannot be, or does not say."""
