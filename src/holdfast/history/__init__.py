"""The incremental engine: each row stores a complete checkpoint at the cost of what changed.

Pure: no I/O, no clock, no randomness. A state is split into cells, cells are compared with those stored last, and the
differences become a row; rows are read back into cells and a state. May import records and codec only.
"""
