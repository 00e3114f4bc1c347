"""The model folder that a run ships: weights, card, calibration, and the loader."""
