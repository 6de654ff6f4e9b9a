import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models
from django.db.models import F, Q

from hipq_django.migrations._scripts import functions


class Migration(migrations.Migration):
    dependencies = [("hipq", "0005_schedule_has_times")]

    operations = [
        # Queues before jobs, as an enqueue locks them.
        migrations.AddField(
            "queue",
            "share",
            models.DecimalField(
                decimal_places=3, editable=False, max_digits=12, null=True, verbose_name="share"
            ),
        ),
        migrations.AddField(
            "queue",
            "owed",
            models.DecimalField(
                db_default=0,
                decimal_places=3,
                default=0,
                editable=False,
                max_digits=12,
                verbose_name="owed",
            ),
        ),
        migrations.AddField(
            "queue",
            "owed_to",
            models.SmallIntegerField(editable=False, null=True, verbose_name="owed to"),
        ),
        migrations.AddField(
            "queue",
            "owed_time",
            models.DateTimeField(editable=False, null=True, verbose_name="owed time"),
        ),
        migrations.AddConstraint(
            "queue",
            models.CheckConstraint(
                condition=Q(owed__gte=0) & (Q(share__isnull=True) | Q(share__gte=0)),
                name="hipq_queue_share_range",
            ),
        ),
        migrations.AddField(
            "job",
            "shard_key",
            models.TextField(
                blank=True,
                editable=False,
                help_text="Says in which shard the job is, if it was given one.",
                null=True,
                verbose_name="shard key",
            ),
        ),
        migrations.RunPython(functions("0006_shards"), functions("0006_drop_shards")),
        migrations.CreateModel(
            "ShardMap",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "instance",
                    models.CharField(max_length=100, unique=True, verbose_name="instance"),
                ),
                ("number", models.SmallIntegerField(verbose_name="number")),
                ("count", models.SmallIntegerField(verbose_name="count")),
                ("count_before", models.SmallIntegerField(verbose_name="count before")),
                ("first_id", models.BigIntegerField(verbose_name="first id")),
                (
                    "create_time",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="create time"
                    ),
                ),
            ],
            options={
                "verbose_name": "shard map",
                "verbose_name_plural": "shard maps",
                "db_table": "hipq_shard",
                "base_manager_name": "objects",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(number__gte=0, number__lt=F("count"), count__lte=64)
                        & Q(count_before__gte=1, count_before__lte=F("count"), first_id__gte=0),
                        name="hipq_shard_ranges",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "Transfer",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "queue",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="transfers",
                        to="hipq.queue",
                        verbose_name="queue",
                    ),
                ),
                ("peer", models.SmallIntegerField(verbose_name="peer")),
                (
                    "sent",
                    models.DecimalField(
                        db_default=0,
                        decimal_places=3,
                        default=0,
                        max_digits=20,
                        verbose_name="sent",
                    ),
                ),
                (
                    "received",
                    models.DecimalField(
                        db_default=0,
                        decimal_places=3,
                        default=0,
                        max_digits=20,
                        verbose_name="received",
                    ),
                ),
            ],
            options={
                "verbose_name": "transfer",
                "verbose_name_plural": "transfers",
                "base_manager_name": "objects",
                "constraints": [
                    models.UniqueConstraint(
                        fields=["queue", "peer"], name="hipq_transfer_peer_unique"
                    ),
                    models.CheckConstraint(
                        condition=Q(peer__gte=0, peer__lt=64, sent__gte=0, received__gte=0),
                        name="hipq_transfer_ranges",
                    ),
                ],
            },
        ),
    ]
