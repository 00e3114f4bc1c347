"""Time and disk: the training loop, stages, checkpoints, events."""
