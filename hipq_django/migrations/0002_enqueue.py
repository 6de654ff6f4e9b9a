from django.db import migrations

from hipq_django.migrations._scripts import functions


class Migration(migrations.Migration):
    dependencies = [("hipq", "0001_initial")]

    operations = [
        migrations.RunPython(functions("0002_enqueue"), functions("0002_drop_enqueue")),
    ]
