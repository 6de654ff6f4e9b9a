"""Load and faults together, and a ledger outside the database that says what had to come of it."""
