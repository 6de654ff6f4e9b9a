from django.db import migrations

from hipq_django.migrations._scripts import script


class Migration(migrations.Migration):
    dependencies = [("hipq", "0001_initial")]

    operations = [
        migrations.RunPython(script("0002_enqueue"), script("0002_drop_enqueue")),
    ]
