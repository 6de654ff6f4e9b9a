"""Schedules: rows that make a job at each due time, whichever worker comes first."""
