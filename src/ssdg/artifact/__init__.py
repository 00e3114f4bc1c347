"""The model folder that a run ships: weights, card, calibration, and how to load it."""
