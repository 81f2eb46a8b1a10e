"""The optimiser step: settings, gradients, clips, swings."""
