"""Folders, zips, npz files, split lists and manifests as trees of images, and their decoding."""
