from django.db import migrations

from hipq_django import parents, schema


class Migration(migrations.Migration):
    dependencies = [("hipq", "0001_initial")]

    operations = [
        migrations.RunPython(schema.install_guard, schema.remove_guard),
        migrations.RunPython(parents.check_by_statement, parents.check_by_row),
        migrations.RunPython(schema.set_storage, schema.reset_storage),
    ]
