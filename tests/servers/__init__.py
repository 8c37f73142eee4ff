"""Real servers for the tests: private, on loopback, with data directories that vanish with them."""
