"""Runs: a process claims a thread, does its steps once, asks people, survives, and whoever comes next continues."""
