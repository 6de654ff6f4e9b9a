"""The throttlers of the measured queues."""

from hipq_django import KeyLimit

by_tenant = KeyLimit("tenant", 5)
