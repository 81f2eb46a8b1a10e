"""What goes wrong between sampler and trainer: other weights, numerics or truncation."""
