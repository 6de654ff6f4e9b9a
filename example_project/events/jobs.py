"""The job that stores an event."""

import hipq_django as hipq
from example_project.events.models import Event
from hipq_django.models import Job


@hipq.job_type("store_event", queue="events", retry=hipq.Exponential(max_attempts=10))
def store_event(job: Job) -> None:
    """Store the event once, however often its job runs."""
    data = job.job_data
    values = {
        "account": data["account"],
        "name": data["name"],
        # The event happened when it came in, not when it is worked off.
        "create_time": job.create_time,
    }
    Event.objects.get_or_create(event_id=data["id"], defaults=values)
