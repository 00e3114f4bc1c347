"""Image sets: reading, cached decoding, sampling and augmentation."""
