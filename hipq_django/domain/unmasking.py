"""Puts stored values back where somebody edited what was shown with masks. Pure."""

from __future__ import annotations

import json
from typing import Any

from hipq_django.domain.redaction import MASK
from hipq_django.exceptions import InvalidJobError


def unmask(edited: Any, stored: Any, shown: Any) -> Any:
    """Return an edited value with the stored values where it has the mask in their place.

    `shown` is the stored value as it was shown, masked.

    Raise `InvalidJobError` for a mask in another place: what it stands for is not known. Also for
    a value that is nested deeper than Python can follow: 3.11 has one limit for all its frames.
    """
    try:
        restored = _restored(edited, stored, shown)
        changed = json.dumps(_changed(restored, stored), ensure_ascii=False)
    except RecursionError as error:
        text = "The value is nested too deeply to be compared with what is stored: replace it."
        raise InvalidJobError(text) from error
    if MASK in changed:
        raise InvalidJobError(
            f"{MASK} stands for a value that is not shown: leave it where it is, or replace it."
        )
    return restored


def _restored(edited: Any, stored: Any, shown: Any) -> Any:
    if edited == shown and type(edited) is type(shown):
        return stored
    if isinstance(edited, dict) and isinstance(stored, dict) and isinstance(shown, dict):
        names = dict(zip(shown, stored, strict=True))  # which may be masked, too
        return {
            names.get(key, key): (
                _restored(value, stored[names[key]], shown[key]) if key in names else value
            )
            for key, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and not _is_moved(edited, shown):
        return [_restored(*parts) for parts in zip(edited, stored, shown, strict=True)]
    return edited


def _is_moved(edited: list[Any], shown: list[Any]) -> bool:
    """Return whether elements have other places than they were shown in, and masks with them."""
    if len(edited) != len(shown):
        return True
    moved = [each for each, there in zip(edited, shown, strict=True) if each != there]
    return any(each in shown and MASK in json.dumps(each, ensure_ascii=False) for each in moved)


def _changed(value: Any, stored: Any) -> Any:
    """Return what of a value is not as it was stored: that may have held the mask's characters."""
    if value == stored:
        return None
    if isinstance(value, dict) and isinstance(stored, dict):
        return [
            _changed(element, stored[key]) if key in stored else {key: element}
            for key, element in value.items()
        ]
    if isinstance(value, list) and isinstance(stored, list) and len(value) == len(stored):
        return [_changed(*pair) for pair in zip(value, stored, strict=True)]
    return value
