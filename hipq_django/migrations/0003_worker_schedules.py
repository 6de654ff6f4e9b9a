from django.db import migrations

from hipq_django.models.base import JsonField


class Migration(migrations.Migration):
    dependencies = [("hipq", "0002_enqueue")]

    operations = [
        # Workers of the release before have NULL: those that are there, and those to come.
        migrations.AddField("worker", "schedules", JsonField("schedules", null=True)),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    "worker", "schedules", JsonField("schedules", default=list, null=True)
                ),
            ]
        ),
    ]
