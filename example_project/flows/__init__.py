"""Flows: a shop's orders, readings that are summed up, and Fibonacci's numbers."""
