"""Loops: plan, execute, observe, reflect. A checkpoint after each transition that decides something."""
