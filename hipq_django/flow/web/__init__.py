"""Nodes by HTTP: endpoints, what each takes, and what it refuses."""
