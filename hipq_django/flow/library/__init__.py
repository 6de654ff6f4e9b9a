"""The standard components, under names that begin with `flow.`."""

from hipq_django.flow.library import (
    filtering as filtering,
    graph as graph,
    shaping as shaping,
    waiting as waiting,
)
