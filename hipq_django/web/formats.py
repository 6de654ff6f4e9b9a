"""A partner's own message format: how an answer is read from a message, and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from inspect import iscoroutinefunction
from operator import getitem
from typing import Any

from django.db import InterfaceError, OperationalError

from hipq_django.answers.api import receive_one
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import NewAnswer
from hipq_django.domain.validation import checked_type_name
from hipq_django.exceptions import ConfigurationError, InvalidAnswerError, InvalidJobError
from hipq_django.job_types.declaration import Declaration
from hipq_django.models import Answer

Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Response:
    """What `outcome` returns for a response to the job: `value` is JSON.

    If the job waits for several answers, `part` is the name of this one.
    """

    value: Any = field(default=None, repr=False)
    part: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """What `outcome` returns for an error; its retry handler decides. `error` is text or JSON."""

    error: Any = field(repr=False)
    part: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFormat:
    """How the parts of an answer are read from the payload of a message.

    `outcome` is a function payload → Response, ErrorResponse, or None for a message that is no
    answer. `key`, `message_id` and `shard_key` are functions payload → text, or the path of a field
    such as "data.order_id". `job_type` is a name, or a function payload → name. Raise
    `ConfigurationError` for anything else.
    """

    job_type: str | Reader
    key: str | Reader
    outcome: Reader
    message_id: str | Reader | None = None
    shard_key: str | Reader | None = None
    instance: str = DEFAULT

    def __post_init__(self) -> None:
        _check_job_type(self.job_type)
        _check_reader("key", self.key, "a function, or the path of a field such as 'data.order'")
        _check_reader("outcome", self.outcome, "a function", path=False)
        for option in ("message_id", "shard_key"):
            if (reader := getattr(self, option)) is not None:
                _check_reader(option, reader, "a function, the path of a field, or None")

    def receive(self, payload: Any) -> Answer | None:
        """Store the answer in a payload and return it; return None if the payload has no answer.

        Raise `InvalidAnswerError`, with nothing changed, if a part cannot be read or stored.
        """
        outcome = read("outcome", self.outcome, payload)
        if outcome is None:
            return None
        if not isinstance(outcome, Response | ErrorResponse):
            raise InvalidAnswerError(
                f"the outcome is of type {type(outcome).__name__}; return Response(…), "
                "ErrorResponse(…), or None for a message that is no answer."
            )
        name, key = self.job_type, read("key", self.key, payload)
        if not isinstance(name, str):
            name = read("job type", name, payload)
        named = {
            option: read(option.replace("_", " "), reader, payload)
            for option in ("message_id", "shard_key")
            if (reader := getattr(self, option)) is not None
        }
        answer = NewAnswer(name, key, part=outcome.part, **named)
        if isinstance(outcome, Response):
            return receive_one(answer, Answer.Kind.RESPONSE, outcome.value, self.instance)
        return receive_one(answer, Answer.Kind.ERROR, outcome.error, self.instance)


def read(part: str, reader: str | Reader, payload: Any) -> Any:
    """Return the value that a reader finds in a payload.

    Any exception means that the message is malformed, and is raised as `InvalidAnswerError`, except
    for an outage of the database.
    """
    try:
        return _field(reader, payload) if isinstance(reader, str) else reader(payload)
    except (InvalidAnswerError, InterfaceError, OperationalError):
        raise
    except Exception as error:  # the project's code, on data from outside
        path = f" at {reader!r}" if isinstance(reader, str) else ""
        raise InvalidAnswerError(
            f"the {part} cannot be read from the message{path}: {type(error).__name__}."
        ) from error


def _field(path: str, payload: Any) -> Any:
    """Return the field of nested JSON objects; a whole number is returned as text."""
    value = reduce(getitem, path.split("."), payload)
    return str(value) if type(value) is int else value


def _check_job_type(job_type: object) -> None:
    if isinstance(job_type, Declaration):
        raise ConfigurationError(
            f"job_type is the declaration of {job_type.name!r}; give its name, {job_type.name!r}."
        )
    if isinstance(job_type, str):
        try:
            checked_type_name(job_type)
        except InvalidJobError as error:
            raise ConfigurationError(str(error)) from error
    else:
        _check_reader("job_type", job_type, "the name of a job type, or a function")


def _check_reader(option: str, reader: object, wanted: str, *, path: bool = True) -> None:
    is_path = path and isinstance(reader, str) and all(reader.split("."))
    if is_path or (callable(reader) and not iscoroutinefunction(reader)):
        return
    raise ConfigurationError(f"{option} is {reader!r:.200}; give {wanted}.")
