"""The whole life of nodes, in any order of steps."""
