"""Training methods, one file each, in a registry."""
