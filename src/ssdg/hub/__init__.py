"""Published files: download, verify, unpack and lay out datasets and weights."""
