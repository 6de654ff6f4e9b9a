"""What the code declares, by `@job_type` and `@task`, and the registry of it."""
