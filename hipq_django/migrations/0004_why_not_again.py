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
                help_text="Why the job failed then, if no policy or retry handler has decided that.",
                verbose_name="why not again",
            ),
        ),
    ]
