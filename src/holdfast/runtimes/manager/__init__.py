"""Checkpoints for your agent server: when to save, what a checkpoint holds, and recovery at start-up."""
