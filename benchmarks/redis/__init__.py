"""The workloads on Redis: Holdfast, triage-agent's Redis store and bare SETs, on servers of this run."""
