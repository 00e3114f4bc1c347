"""Tables and figures of a benchmark folder. Nothing here trains."""
