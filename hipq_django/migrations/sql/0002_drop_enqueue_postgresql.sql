DROP PROCEDURE hipq_enqueue_a9088850

-- next statement

DROP PROCEDURE hipq_enqueue_with_extra_1edfb585
