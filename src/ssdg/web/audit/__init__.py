"""Audit a crawl before training on it: damaged files, duplicates, leaks and label issues."""
