"""The signed callback URL: what the other system calls with its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from django.core.signing import BadSignature, Signer
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from hipq_django.conf.instances import get_instance
from hipq_django.domain.parts import UNNAMED, checked_part
from hipq_django.exceptions import ConfigurationError, ForgedCallbackError, InvalidJobError
from hipq_django.models import Job
from hipq_django.models.job import JobQuerySet

_SALT = "hipq_django.callback"
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Token:
    """The signed content of a callback URL: which attempt, or part, of which job is answered.

    Without `create_time` it means whichever job has the id. SQLite gives that of a job whose
    transaction was rolled back to another one.
    """

    instance: str
    job_id: int
    attempt: int
    part: str = UNNAMED
    create_time: datetime | None = None

    def sign(self) -> str:
        """Return the text for the URL."""
        part = f"-{quote(self.part, safe='')}" if self.part else ""
        job = f"{self.job_id}{_written(self.create_time)}"
        return _signer().sign(f"{self.instance}-{job}-{self.attempt}{part}")

    def rows(self, using: str) -> JobQuerySet:
        """Return the row of the job, if it is still there."""
        rows = Job.objects.using(using).filter(pk=self.job_id)
        return rows if self.create_time is None else rows.filter(create_time=self.create_time)


@dataclass(frozen=True, slots=True)
class SealedToken:
    """The text of a token between URL and view; its `repr` hides the token."""

    text: str = field(repr=False)


class TokenConverter:
    """Matches the rest of the path, even if a partner has mangled the token.

    It may still contain a valid token, and Django would log a path that no view matches.
    """

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> SealedToken:
        """Return the argument for the view."""
        return SealedToken(value)

    def to_url(self, value: SealedToken) -> str:
        """Return the text for the URL."""
        return value.text


def read_token(text: str) -> Token:
    """Return the content of a token; raise `ForgedCallbackError` unless this project signed it."""
    try:
        signed = _signer().unsign(text)
        instance, job, attempt, *part = signed.split("-", 3)
        job_id, _, written = job.partition("_")
        name, moment = unquote("".join(part)), _read(written)
        return Token(instance, int(job_id), int(attempt), name, moment)
    except (BadSignature, ValueError) as error:
        raise ForgedCallbackError("the callback token was not signed by this project.") from error


def _written(moment: datetime | None) -> str:
    """Return a moment to the microsecond, after the mark that divides it from an id."""
    return "" if moment is None else f"_{(moment - _EPOCH) // _MICROSECOND:x}"


def _read(written: str) -> datetime | None:
    return _EPOCH + int(written, 16) * _MICROSECOND if written else None


def callback_url(job: Job, *, part: str | None = None, request: HttpRequest | None = None) -> str:
    """Return the URL to which the other system POSTs the answer to this attempt of the job.

    `part` names the part that is answered there, for a handler that returns `WAIT_FOR`.
    The body is JSON: `{"response": …}` or `{"error": …}`, and before that any number of
    `{"progress": {"percent": 40, "message": "…"}}` and `{"extend": seconds}`. The site's address is
    that of `request`, or else the setting CALLBACK_BASE_URL. Raise `ConfigurationError` if there is
    neither, or if the project's URLs do not include `hipq_django.urls`; raise `InvalidJobError` for
    an invalid name of a part, and for a job that was never enqueued.
    """
    instance = _checked(job).queue.instance
    name = UNNAMED if part is None else checked_part(part)
    token = Token(instance, job.pk, job.attempt, name, job.create_time)
    try:
        address = reverse("hipq_django:callback", kwargs={"token": SealedToken(token.sign())})
    except NoReverseMatch as error:
        raise ConfigurationError(
            "callback_url: the project's URLs have no hipq callback in the namespace hipq_django; "
            'add path("hipq/", include("hipq_django.urls")) to them, outside of any other '
            "namespace."
        ) from error
    if request is not None:
        return request.build_absolute_uri(address)
    base = get_instance(instance).callback_base_url
    if not base:
        raise ConfigurationError(
            f"callback_url: HIPQ[{instance!r}] has no CALLBACK_BASE_URL; set it to the address of "
            "this site, for example 'https://shop.example', or give request=…."
        )
    return base.rstrip("/") + address


def _checked(job: Job) -> Job:
    if job.pk is None:
        raise InvalidJobError("callback_url: the job was never enqueued.")
    return job


def _signer() -> Signer:
    # Created each time, so that a changed SECRET_KEY, as in tests, takes effect.
    return Signer(salt=_SALT, sep=".")
