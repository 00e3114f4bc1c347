"""Images into sets: reading, decoding once, sampling, augmenting."""
