"""Check what a release ships: build the wheel and the sdist, install the wheel in clean environments, and use it."""
