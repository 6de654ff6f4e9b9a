"""The throttlers of two queues."""

import hipq_django as hipq

RATE = hipq.RateLimit(10, per=2)
PER_TENANT = hipq.KeyLimit("tenant", 2)
