"""What goes wrong with the update: learning rate, gradient, clip range, and steps on one batch."""
