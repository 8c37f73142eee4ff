"""What Holdfast stores and returns, as frozen, typed structures, and its errors. No I/O, no clock, no randomness."""
