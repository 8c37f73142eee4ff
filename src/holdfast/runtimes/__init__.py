"""Ways to write an agent, each built on a run: what they record, every tool of the log can read."""
