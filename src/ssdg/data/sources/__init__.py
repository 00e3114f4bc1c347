"""Readers of folders, archives, .npz files, split lists and manifests, and image decoding."""
