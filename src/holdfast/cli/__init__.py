"""The command line: `holdfast ...`. Thin: a command calls the blocking API and hands a value to the printing code.

A new command is a line in `catalogue.py` and a function in a file of its family.
"""

from holdfast.cli.group import main

__all__ = ["main"]
