"""The public names of `hipq_django` and their modules; the package loads them by this list."""

from hipq_django.answers.api import (
    acomplete as acomplete,
    afail as afail,
    areceive_many as areceive_many,
    complete as complete,
    fail as fail,
    receive_many as receive_many,
)
from hipq_django.answers.callback_urls import callback_url as callback_url
from hipq_django.api.batches import (
    abatch as abatch,
    acancel_batch as acancel_batch,
    achain as achain,
    batch as batch,
    cancel_batch as cancel_batch,
    chain as chain,
)
from hipq_django.api.control import (
    acancel as acancel,
    areprioritize as areprioritize,
    areschedule as areschedule,
    arun_now as arun_now,
    cancel as cancel,
    reprioritize as reprioritize,
    reschedule as reschedule,
    run_now as run_now,
)
from hipq_django.api.enqueueing import (
    aenqueue as aenqueue,
    aenqueue_many as aenqueue_many,
    enqueue as enqueue,
    enqueue_many as enqueue_many,
)
from hipq_django.api.finishing import finishing as finishing
from hipq_django.api.many import (
    acancel_many as acancel_many,
    arequeue_many as arequeue_many,
    arun_now_many as arun_now_many,
    cancel_many as cancel_many,
    requeue_many as requeue_many,
    run_now_many as run_now_many,
)
from hipq_django.api.pages import ManyResult as ManyResult
from hipq_django.api.reporting import (
    aextend as aextend,
    aprogress as aprogress,
    extend as extend,
    progress as progress,
)
from hipq_django.api.requeueing import arequeue as arequeue, requeue as requeue
from hipq_django.api.results import (
    aget_job as aget_job,
    aget_result as aget_result,
    get_job as get_job,
    get_result as get_result,
)
from hipq_django.domain.drafts import NewAnswer as NewAnswer, NewJob as NewJob
from hipq_django.domain.parts import WAIT_FOR as WAIT_FOR
from hipq_django.domain.reasons import Reason as Reason
from hipq_django.domain.retries import (
    WAIT as WAIT,
    Exponential as Exponential,
    Fixed as Fixed,
    GiveUp as GiveUp,
    Never as Never,
    RetryAt as RetryAt,
    RetryIn as RetryIn,
    Snooze as Snooze,
)
from hipq_django.domain.schedules import Cron as Cron, Every as Every
from hipq_django.domain.sharding import Shard as Shard
from hipq_django.domain.throttling import (
    Hold as Hold,
    KeyLimit as KeyLimit,
    RateLimit as RateLimit,
    Reschedule as Reschedule,
    Run as Run,
    ShareLimit as ShareLimit,
)
from hipq_django.domain.windows import TimeWindow as TimeWindow
from hipq_django.exceptions import (
    ArgumentsError as ArgumentsError,
    ConfigurationError as ConfigurationError,
    DuplicateJobKeyError as DuplicateJobKeyError,
    ErrorAnswer as ErrorAnswer,
    ForgedCallbackError as ForgedCallbackError,
    ForgedWebhookError as ForgedWebhookError,
    HipqError as HipqError,
    InvalidAnswerError as InvalidAnswerError,
    InvalidJobError as InvalidJobError,
    InvalidJobTypeError as InvalidJobTypeError,
    InvalidScheduleError as InvalidScheduleError,
    JobCancelled as JobCancelled,
    JobFailedError as JobFailedError,
    JobNotFinishedError as JobNotFinishedError,
    JobNotFoundError as JobNotFoundError,
    JobTimeout as JobTimeout,
    ResultError as ResultError,
    ScheduleNotFoundError as ScheduleNotFoundError,
    ShardError as ShardError,
    ShardMapError as ShardMapError,
    ShardsError as ShardsError,
    StaleAttemptError as StaleAttemptError,
    StoredArgumentsError as StoredArgumentsError,
    UnknownOptionError as UnknownOptionError,
    WorkerLost as WorkerLost,
)
from hipq_django.job_types.current import (
    INPUTS as INPUTS,
    JOB as JOB,
    current_job as current_job,
)
from hipq_django.job_types.job_type import job_type as job_type
from hipq_django.job_types.task import task as task
from hipq_django.models import Batch as Batch, Job as Job, Queue as Queue
from hipq_django.monitoring.reasons import (
    aexplain as aexplain,
    explain as explain,
)
from hipq_django.schedules.api import (
    abackfill as abackfill,
    apause_schedule as apause_schedule,
    aresume_schedule as aresume_schedule,
    arun_schedule as arun_schedule,
    aschedule as aschedule,
    aunschedule as aunschedule,
    backfill as backfill,
    pause_schedule as pause_schedule,
    resume_schedule as resume_schedule,
    run_schedule as run_schedule,
    schedule as schedule,
    unschedule as unschedule,
)
from hipq_django.sharding.map import (
    ashard_of as ashard_of,
    ashards as ashards,
    shard_of as shard_of,
    shards as shards,
)
from hipq_django.tasks_backend.new import new as new
from hipq_django.web.formats import ErrorResponse as ErrorResponse, Response as Response
from hipq_django.web.verifiers import (
    GitHubSignature as GitHubSignature,
    NoVerification as NoVerification,
    SharedSecret as SharedSecret,
    ShopifySignature as ShopifySignature,
    SlackSignature as SlackSignature,
    StandardWebhooksSignature as StandardWebhooksSignature,
    StripeSignature as StripeSignature,
)
from hipq_django.web.webhook_view import WebhookView as WebhookView

__version__: str
