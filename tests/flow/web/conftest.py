"""Who asks, and how."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

PERMISSIONS = (
    "view_node",
    "view_message",
    "read_port",
    "write_port",
    "start_node",
    "run_node",
    "terminate_node",
    "edit_node",
    "edit_graph",
)


class Api:
    """Sends requests as a user with some permissions."""

    def __init__(self, *permissions: str, prefix: str = "/flow/") -> None:
        self.prefix = prefix
        self.client = Client()
        self.user, _ = User.objects.get_or_create(username="ann")
        self.user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="hipq_flow", codename__in=permissions)
        )
        self.client.force_login(self.user)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Return the response."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, f"{self.prefix}{path}", content, content_type="application/json", **options
        )

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return self._answered(self.ask("GET", path))

    def post(self, path: str, **body: Any) -> Any:
        """Return the answer to a POST."""
        return self._answered(self.ask("POST", path, body))

    def refused(self, path: str, status: int, **body: Any) -> Any:
        """Return why a POST is refused."""
        response = self.ask("POST", path, body)
        assert response.status_code == status, response.content
        return response.json()

    @staticmethod
    def _answered(response: Any) -> Any:
        assert response.status_code == 200, response.content
        return response.json()


@pytest.fixture
def api(db: None) -> Api:
    """A user who may do all."""
    return Api(*PERMISSIONS)


@pytest.fixture
def user_with(db: None) -> Callable[..., Api]:
    """Return what makes a user with some permissions."""
    return Api
