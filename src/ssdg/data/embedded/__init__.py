"""Embedded benchmarks: digits and web-digits, generated without a download."""
