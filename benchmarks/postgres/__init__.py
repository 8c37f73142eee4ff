"""The workloads on PostgreSQL: Holdfast, langgraph's PostgreSQL saver and bare INSERTs, on one server of this run."""
