"""Inference with trained networks: find, decode and classify images as a stream. Needs no torch."""
