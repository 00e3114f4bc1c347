"""Trained networks in use: images found, decoded and classified as a stream. Nothing here needs torch."""
