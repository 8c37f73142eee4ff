"""Checkpoints for an agent server of your own: when to save, what a checkpoint holds, and recovery at start-up."""
