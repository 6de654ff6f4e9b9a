"""Shards: where jobs are, and how the limits of queues are divided among databases."""
