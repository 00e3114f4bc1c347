"""Benchmarks: grids of runs in one folder, and the tables and figures made from it."""
