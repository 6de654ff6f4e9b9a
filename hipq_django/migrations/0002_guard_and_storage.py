from django.db import migrations

from hipq_django import parents, schema
from hipq_django.hotpath import statements


class Migration(migrations.Migration):
    dependencies = [("hipq", "0001_initial")]

    operations = [
        migrations.RunPython(schema.install_guard, schema.remove_guard),
        migrations.RunPython(parents.check_by_statement, parents.check_by_row),
        migrations.RunPython(statements.create, statements.drop),
        migrations.RunPython(schema.set_storage, schema.reset_storage),
    ]
