"""The inbox: which job an answer belongs to, and what it does to it.

Source of the rule "first answer wins": one accepted response per job, by a constraint.
"""

from hipq_django.inbox.arrival import known, log_received, new_answer, receive, receive_by_key
from hipq_django.inbox.by_hand import assign, refusal
from hipq_django.inbox.early import close, count_early, fresh_early, match, take_early, take_waiting
from hipq_django.inbox.effects import act, has_response_handler
from hipq_django.inbox.finding import lock_job_by_id
from hipq_django.inbox.messages import Kind, Message, Status

__all__ = [
    "Kind",
    "Message",
    "Status",
    "act",
    "assign",
    "close",
    "count_early",
    "fresh_early",
    "has_response_handler",
    "known",
    "lock_job_by_id",
    "log_received",
    "match",
    "new_answer",
    "receive",
    "receive_by_key",
    "refusal",
    "take_early",
    "take_waiting",
]
