DROP FUNCTION hipq_probe_queues_61c260aa

-- next statement

DROP FUNCTION hipq_lock_8ecabbee

-- next statement

DROP FUNCTION hipq_first_page_78d2cb41

-- next statement

DROP FUNCTION hipq_due_ceb3639a

-- next statement

DROP FUNCTION hipq_claim_due_727849bb

-- next statement

DROP FUNCTION hipq_claim_fitting_a374d6a4

-- next statement

DROP FUNCTION hipq_claim_48ba31bd

-- next statement

DROP FUNCTION hipq_finish_21dc8b13

-- next statement

DROP FUNCTION hipq_park_c851c141

-- next statement

DROP FUNCTION hipq_fail_c8d6bb83

-- next statement

DROP FUNCTION hipq_conclude_e8fd2191

-- next statement

DROP FUNCTION hipq_failures_bb304e2a

-- next statement

DROP FUNCTION hipq_has_overdue_04c0b153

-- next statement

DROP FUNCTION hipq_has_early_1d75dcce

-- next statement

DROP FUNCTION hipq_is_early_24cd5092

-- next statement

DROP FUNCTION hipq_free_16f32139

-- next statement

DROP PROCEDURE hipq_enqueue_530431ff

-- next statement

DROP PROCEDURE hipq_enqueue_with_extra_edbbc029

-- next statement

DROP PROCEDURE hipq_settle_by_key_a4efa5f2

-- next statement

DROP PROCEDURE hipq_settle_by_attempt_a403132e
