"""`run_due_jobs` for tests that look at how jobs failed."""

from __future__ import annotations

from functools import partial

from hipq_django import testing

run_due_jobs = partial(testing.run_due_jobs, raise_errors=False)
