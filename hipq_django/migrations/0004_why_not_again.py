from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hipq", "0003_worker_schedules")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="why_not_again",
            field=models.TextField(
                db_default="NONE",
                default="NONE",
                editable=False,
                verbose_name="why not again",
            ),
        ),
    ]
