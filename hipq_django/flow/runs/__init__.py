"""Runs: how nodes get jobs, what these read and do, and how they end."""
