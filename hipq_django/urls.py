"""`path("hipq/", include("hipq_django.urls"))`."""

from django.urls import path

from hipq_django.views import CallbackView

app_name = "hipq_django"
urlpatterns = [path("callback/<str:token>/", CallbackView.as_view(), name="callback")]
