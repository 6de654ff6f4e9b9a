DROP FUNCTION hipq_probe_queues_2855c53a

-- next statement

DROP FUNCTION hipq_lock_2de0c206

-- next statement

DROP FUNCTION hipq_first_page_2917843c

-- next statement

DROP FUNCTION hipq_due_a5ccc980

-- next statement

DROP FUNCTION hipq_claim_due_df63a85f

-- next statement

DROP FUNCTION hipq_claim_fitting_e10d31e6

-- next statement

DROP FUNCTION hipq_claim_293486d4

-- next statement

DROP FUNCTION hipq_finish_16070f00

-- next statement

DROP FUNCTION hipq_park_c58de970

-- next statement

DROP FUNCTION hipq_fail_5e159514

-- next statement

DROP FUNCTION hipq_conclude_e9ff1a27

-- next statement

DROP FUNCTION hipq_failures_97b7b5ef

-- next statement

DROP FUNCTION hipq_has_overdue_159303e9

-- next statement

DROP FUNCTION hipq_has_early_bce9b4fb

-- next statement

DROP FUNCTION hipq_is_early_9dff4dc1

-- next statement

DROP FUNCTION hipq_free_7a0d6677

-- next statement

DROP FUNCTION hipq_enqueue_1fe787cc

-- next statement

DROP FUNCTION hipq_settle_by_key_12cbd863

-- next statement

DROP FUNCTION hipq_settle_by_attempt_edb844e1
