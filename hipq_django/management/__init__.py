"""The commands, under `commands`, and the base class that they share."""
