"""Sessions: conversations made of turns, each executed once, with usage, cost and budgets over the whole thread."""
