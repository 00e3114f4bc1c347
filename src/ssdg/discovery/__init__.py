"""Splitting mixed-domain images into domains by style."""
