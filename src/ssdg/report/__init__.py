"""The report: run folders and benchmark folders as one HTML page. No torch."""
