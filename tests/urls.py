from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("hipq/", include("hipq_django.urls")),
    path("flow/", include("hipq_django.flow.urls")),
    path("other_flow/", include("hipq_django.flow.urls", "other_flow"), {"instance": "other"}),
]
