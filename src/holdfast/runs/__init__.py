"""Runs: a process claims a thread, does its steps once, asks people, and the next process resumes where it died."""
