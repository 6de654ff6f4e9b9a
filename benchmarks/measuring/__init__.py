"""What every runner does, in its own process and virtual environment: standard library only.

Runners import nothing else of this package, because hipq_django's own dependencies are not in the
peers' environments.
"""
