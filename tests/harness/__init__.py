"""Shared by our own tests: broken backends, a plain model of a store, and random walks that compare the two."""
