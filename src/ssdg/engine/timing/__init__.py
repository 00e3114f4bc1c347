"""How long a run takes on this machine, and what it needs: measured before it starts."""
