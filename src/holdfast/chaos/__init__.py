"""`holdfast chaos`: kill a user's durable function before and after each effect, start it again, and compare.

The engine is that of `holdfast.testing` (`crash_engine.py`). Here each life is a child process (`child.py`) that kills
itself with SIGKILL (`killed_life.py`) and writes what it does to a file, also outside of steps (`outside.py`).
`trial.py` runs the children and reads their files; `verdict.py` compares, purely; `torture.py` runs all of it.
"""
