DROP PROCEDURE hipq_enqueue_with_extra_2b3329f4

-- next statement

DROP FUNCTION hipq_lock_f8f7deed

-- next statement

DROP FUNCTION hipq_claim_fitting_986840b5

-- next statement

DROP FUNCTION hipq_probe_queues_10c4f152
