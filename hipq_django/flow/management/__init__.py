"""The command of flows, under `commands`."""
