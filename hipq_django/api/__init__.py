"""The verbs that projects call: enqueue, cancel, report, and what belongs to them."""
