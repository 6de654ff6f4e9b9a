DROP FUNCTION hipq_probe_queues_5991446c

-- next statement

DROP FUNCTION hipq_lock_3410e461

-- next statement

DROP FUNCTION hipq_first_page_713352ee

-- next statement

DROP FUNCTION hipq_due_b1c9f2bc

-- next statement

DROP FUNCTION hipq_claim_due_f014c4ff

-- next statement

DROP FUNCTION hipq_claim_fitting_5c74b280

-- next statement

DROP FUNCTION hipq_claim_16b96892

-- next statement

DROP FUNCTION hipq_finish_89f6f3da

-- next statement

DROP FUNCTION hipq_park_c851c141

-- next statement

DROP FUNCTION hipq_fail_c8d6bb83

-- next statement

DROP FUNCTION hipq_conclude_e8fd2191

-- next statement

DROP FUNCTION hipq_failures_bb304e2a

-- next statement

DROP FUNCTION hipq_has_overdue_5ae55553

-- next statement

DROP FUNCTION hipq_has_early_625e8f92

-- next statement

DROP FUNCTION hipq_is_early_b5a8adf4

-- next statement

DROP FUNCTION hipq_free_16f32139

-- next statement

DROP FUNCTION hipq_enqueue_8745c24d

-- next statement

DROP FUNCTION hipq_settle_by_key_eac482dc

-- next statement

DROP FUNCTION hipq_settle_by_attempt_d415ecef
