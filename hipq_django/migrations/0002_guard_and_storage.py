from django.db import migrations

from hipq_django import schema


class Migration(migrations.Migration):
    dependencies = [("hipq", "0001_initial")]

    operations = [
        migrations.RunPython(schema.install_guard, schema.remove_guard),
        migrations.RunPython(schema.set_storage, schema.reset_storage),
    ]
