"""How long a test waits for another thread, process or server. Only a hang takes this long, on however slow a machine.

It is less than the limit of a whole test (`timeout` in pyproject.toml), so that the test itself says what did not come.
"""

GIVE_UP_SECONDS = 300
