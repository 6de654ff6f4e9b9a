"""What is done to the system: each fault is a function that does it once, and undoes it."""
