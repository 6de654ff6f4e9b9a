"""What differs between databases below the models: transactions, locks, clock, wake-ups."""
