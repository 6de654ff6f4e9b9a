DROP DOMAIN hipq_timeout, hipq_percent, hipq_seconds, hipq_priority, hipq_factor, hipq_key, hipq_state

-- next statement

DROP TYPE hipq_row_of_state
