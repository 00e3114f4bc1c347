"""Search engines to image files: find, fetch, check, record."""
