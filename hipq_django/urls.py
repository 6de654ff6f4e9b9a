"""`path("hipq/", include("hipq_django.urls"))`."""

from django.urls import path, register_converter

from hipq_django.answers.callback_urls import TokenConverter
from hipq_django.web.callback_view import CallbackView

register_converter(TokenConverter, "hipq_token")

app_name = "hipq_django"
urlpatterns = [
    path("callback/<hipq_token:token>/", CallbackView.as_view(), name="callback"),
    # Without the slash: Django would redirect, and lose the body, or log the token.
    path("callback/<hipq_token:token>", CallbackView.as_view()),
]
