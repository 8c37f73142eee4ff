"""What is kept: the nouns of Holdfast as frozen, typed structures, and its errors. No I/O, no clock, no randomness."""
