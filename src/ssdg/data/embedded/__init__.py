"""The digits and web-digits benchmarks that ship with the package."""
