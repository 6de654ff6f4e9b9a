"""The shop's address."""

from django.urls import path

from example_project.payments.views import shop

urlpatterns = [path("", shop, name="shop")]
