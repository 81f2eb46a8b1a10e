"""What goes wrong between the parts of a trainer: names, sizes of batches, devices."""
