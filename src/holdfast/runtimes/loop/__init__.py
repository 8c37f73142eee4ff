"""Loops: plan, execute, observe, reflect. Each transition that decides something is checkpointed."""
