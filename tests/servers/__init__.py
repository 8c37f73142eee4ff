"""Real servers for the tests: private, on loopback, with data directories that vanish with them.

A test that starts one carries the mark `servers`; `make test-quick` leaves those tests out and allows no server.
"""

import os


def check_allowed() -> None:
    """Fail in a test run that promised to start no server."""
    if os.environ.get("HOLDFAST_SERVERS") == "none":
        raise AssertionError("this test starts a server: give it the mark `servers`, so that make test-quick skips it")
