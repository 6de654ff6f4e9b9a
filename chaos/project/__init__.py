"""The Django project whose workers are put under load and faults."""
