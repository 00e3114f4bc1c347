"""Choosing among runs without labels: reads `result.json` only; nothing here trains or needs torch."""
