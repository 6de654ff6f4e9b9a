"""Graphs: nodes and connections as data."""
