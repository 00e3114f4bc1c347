"""Losses, selection rules and schedules as pure functions of tensors and floats."""
