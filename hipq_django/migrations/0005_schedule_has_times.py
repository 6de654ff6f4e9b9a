from typing import Any

from django.db import migrations, models
from django.db.models import Q


def pause_without_times(apps: Any, schema_editor: Any) -> None:
    """Let a schedule that the former check let pass, and nothing could fire, keep the new one."""
    rows = apps.get_model("hipq", "Schedule").objects.using(schema_editor.connection.alias)
    reason = "It had no times. Give it some, and resume it."
    rows.filter(cron="", every_seconds=None).update(
        every_seconds=86_400, paused=True, pause_reason=reason
    )


class Migration(migrations.Migration):
    dependencies = [("hipq", "0004_why_not_again")]

    operations = [
        migrations.RunPython(pause_without_times, migrations.RunPython.noop),
        migrations.RemoveConstraint("schedule", "hipq_schedule_has_one_spec"),
        migrations.AddConstraint(
            "schedule",
            models.CheckConstraint(
                condition=(Q(cron="") & Q(every_seconds__isnull=False) & Q(every_seconds__gte=1))
                | (~Q(cron="") & Q(every_seconds__isnull=True)),
                name="hipq_schedule_has_one_spec",
            ),
        ),
    ]
