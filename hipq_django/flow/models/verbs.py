"""The verbs that methods of models call.

They stand above the models, so each is loaded when it is called first. `verbs.pyi` lists them.
"""

from hipq_django.conf.public_names import loaded_on_first_use

__getattr__, _ = loaded_on_first_use(__name__, "verbs.pyi")
