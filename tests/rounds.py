"""How often the fault tests go round: once in an ordinary run, HOLDFAST_ROUNDS times on request (`make faults`)."""

import os

TIMES = int(os.environ.get("HOLDFAST_ROUNDS", "1"))
