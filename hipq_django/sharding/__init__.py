"""The one door to shards: which there are, and which of them a key or an id belongs to."""
