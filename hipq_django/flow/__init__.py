"""Flows: work that lasts, takes data whenever it comes, and is seen and changed while it goes on.

Add `hipq_django.flow` to INSTALLED_APPS. Django imports this package before models can be imported,
so public names are loaded on first use. `__init__.pyi` lists them.
"""

from hipq_django.conf.public_names import loaded_on_first_use

__getattr__, __all__ = loaded_on_first_use(__name__)


def __dir__() -> list[str]:
    return __all__
