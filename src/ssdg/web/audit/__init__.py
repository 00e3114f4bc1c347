"""Check a crawl before training on it: damage, duplicates, leaks, and label issues."""
