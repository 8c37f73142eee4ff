"""The incremental engine: a full checkpoint at the price of the change.

Pure: no I/O, no clock, no randomness. A state is opened into cells, cells are compared with what was stored last, and
what differs becomes a row; rows, read back, become cells and a state again. May import records and codec only.
"""
