"""A durable job queue in your Django project's own database, for jobs whose answer comes later.

Django imports the package before models can be imported, so public names are loaded on first use.
`__init__.pyi` lists them.
"""

from hipq_django.conf.public_names import loaded_on_first_use

__version__ = "0.1.0"

__getattr__, _names = loaded_on_first_use(__name__)
__all__ = ["__version__", *_names]  # noqa: PLE0604 - all of them are text


def __dir__() -> list[str]:
    return __all__
