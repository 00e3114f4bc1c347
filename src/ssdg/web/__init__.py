"""Web data: crawl images, ingest an existing crawl, and record every kept or refused file in a manifest."""
