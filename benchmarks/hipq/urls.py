"""The addresses of the measured project: the callback's."""

from django.urls import include, path

urlpatterns = [path("hipq/", include("hipq_django.urls"))]
