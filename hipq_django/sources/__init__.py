"""Sources of messages: where answers come from that other systems send through a broker."""

from hipq_django.sources.protocol import (
    IGNORE as IGNORE,
    MessageSource as MessageSource,
    Received as Received,
)
