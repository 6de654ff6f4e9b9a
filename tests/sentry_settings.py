"""The settings of a project that uses Sentry: what it gets goes into a file that the tests read."""

import json
import os
from typing import Any

import sentry_sdk

from tests.settings import *  # noqa: F403 - it is another project with the same settings
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "tests.processapp"]
INSTALLED_APPS += ["tests.sentryapp"]


class ToFile(sentry_sdk.transport.Transport):
    """Writes each event as one line."""

    def capture_envelope(self, envelope: Any) -> None:
        """Write the events of an envelope."""
        with open(os.environ["HIPQ_TEST_SENTRY_FILE"], "a") as file:
            for item in envelope.items:
                if item.type == "event":
                    file.write(json.dumps(item.payload.json) + "\n")


sentry_sdk.init("https://key@sentry.example/1", transport=ToFile)
