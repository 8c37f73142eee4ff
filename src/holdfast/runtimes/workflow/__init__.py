"""Workflows: graphs of executors that exchange messages in supersteps. A checkpoint after each superstep."""
