"""`holdfast chaos`: a user's own durable function, really killed before and after each effect, and started again.

A trial (`trial.py`) is a child process (`child.py`) that kills itself with SIGKILL at one point (`killing.py`), and a
second that goes on to the end. What they did, also outside of steps (`outside.py`), is written to a file while they do
it. The judgement (`verdict.py`) is pure: it compares what was seen with an undisturbed run.
"""
