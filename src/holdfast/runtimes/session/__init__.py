"""Sessions: conversations of turns, each executed once, with usage, cost and budgets for the whole thread."""
