"""Requests that were done, for those who send them again."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.models.base import Row, RowManager


class Request(Row):
    """A request of the HTTP API that had a key, and its answer."""

    instance = models.CharField(_("instance"), max_length=100)
    # Of who asked, for what, and by which key of theirs.
    key = models.CharField(_("key"), max_length=64, unique=True)
    answer = models.TextField(_("answer"), default="")
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("request")
        verbose_name_plural = _("requests")

    def __str__(self) -> str:
        return f"request {self.pk}"
