from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hipq", "0006_shards")]

    operations = [
        migrations.AddField(
            "queue",
            "retention_days_succeeded",
            models.FloatField(blank=True, null=True, verbose_name="retention days of successes"),
        ),
        migrations.AddConstraint(
            "queue",
            models.CheckConstraint(
                condition=models.Q(retention_days_succeeded__range=(0, 36_500)),
                name="hipq_queue_succeeded_range",
            ),
        ),
    ]
