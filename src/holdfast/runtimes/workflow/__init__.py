"""Workflows: graphs of executors that exchange messages in supersteps. Each superstep is checkpointed."""
