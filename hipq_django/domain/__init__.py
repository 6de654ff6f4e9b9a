"""The rules, without a database and without a clock: they take values, and `now`."""
