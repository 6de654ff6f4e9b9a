"""A Django project that uses hipq_django for four things; see docs/example.md."""
