"""The command line: `holdfast ...`. A command calls the blocking API and returns an `Answer`; one place prints it.

A new command is a function in the file of its family, and a line in `group.py`.
"""

from holdfast.cli.group import main

__all__ = ["main"]
