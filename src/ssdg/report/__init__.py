"""The report: run folders and benchmark folders as one page. It reads files and never imports torch."""
