DROP DOMAIN hipq_timeout, hipq_percent, hipq_seconds, hipq_priority, hipq_factor, hipq_key
