"""The verbs that methods of models call, and their modules; `verbs.py` loads them by this list."""

from hipq_django.answers.aggregation import answers_so_far as answers_so_far
from hipq_django.api.batches import add as add, add_many as add_many, as_given as as_given
from hipq_django.api.gathering import gather as gather
from hipq_django.api.reporting import (
    extend_attempt as extend_attempt,
    report_attempt as report_attempt,
    set_key as set_key,
)
from hipq_django.api.steps import astep as astep, step as step
from hipq_django.dependencies.needs import inputs as inputs
from hipq_django.models.shard import count_of_shards as count_of_shards
