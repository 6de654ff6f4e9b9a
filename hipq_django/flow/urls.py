"""`path("flow/", include("hipq_django.flow.urls"))`.

Another instance's: `path("flow/", include("hipq_django.flow.urls"), {"instance": "other"})`.
"""

from itertools import groupby
from operator import attrgetter

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from hipq_django.flow.web.operations import ENDPOINTS
from hipq_django.flow.web.view import EndpointView


class SideConverter(StringConverter):
    """Which ports of a node."""

    regex = "inputs|outputs"


register_converter(SideConverter, "hipq_side")

app_name = "hipq_flow"
urlpatterns = [
    path(route, EndpointView.of(endpoints), name=endpoints[0].verb.__name__)
    for route, endpoints in (
        (route, list(found)) for route, found in groupby(ENDPOINTS, attrgetter("route"))
    )
]
