"""Model selection without target labels: rank finished runs by scores in `result.json`. No torch."""
