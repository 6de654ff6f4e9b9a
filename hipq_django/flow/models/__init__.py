"""The rows of flows: nodes, their ports and messages, the outbox of wakes, the log."""

from hipq_django.flow.models.graph import Graph as Graph
from hipq_django.flow.models.log import LogEntry as LogEntry
from hipq_django.flow.models.node import Alias as Alias, Node as Node
from hipq_django.flow.models.port import (
    Channel as Channel,
    Connection as Connection,
    Message as Message,
    NodePort as NodePort,
)
from hipq_django.flow.models.request import Request as Request
from hipq_django.flow.models.staged import StagedJob as StagedJob
from hipq_django.flow.models.wake import Wake as Wake
