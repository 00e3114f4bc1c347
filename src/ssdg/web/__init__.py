"""Web data: crawl it, take over a crawl that exists, and keep a manifest of every file kept or refused."""
