"""The supplier: another company's program, which knows nothing of Django or hipq_django."""
