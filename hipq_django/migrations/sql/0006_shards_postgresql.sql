CREATE PROCEDURE hipq_enqueue_with_extra_2b3329f4(jsonb, OUT given bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
IF set_config('hipq.parents', CASE WHEN has_table_privilege('hipq_queue'::regclass, 'UPDATE')
    AND has_table_privilege('hipq_jobtype'::regclass, 'UPDATE') THEN 'locked' ELSE '' END, true) <> '' THEN
INSERT INTO hipq_job (job_data, job_key, queue_id, job_type_id, timeout, scheduled_run_time, priority, throttle_factor, time_windows, rank, deadline, create_time, update_time, origin_id, parent_id, batch_id, hold_time, waiting_key, kept_key, schedule_id, due_time, shard_key, state, outcome, error, result, expects, attempt, phase, has_pending_answer, prefetched, progress, progress_message, extended_seconds) SELECT ($1 -> 0)::jsonb, ($1 ->> 1)::text::text, ($1 ->> 2)::bigint::bigint, ($1 ->> 3)::bigint::bigint, ($1 ->> 4)::double precision::double precision, ($1 ->> 5)::timestamptz::timestamptz, ($1 ->> 6)::integer::integer, ($1 ->> 7)::numeric::numeric, ($1 -> 8)::jsonb, ($1 ->> 9)::bigint::bigint, ($1 ->> 10)::timestamptz::timestamptz, ($1 ->> 11)::timestamptz::timestamptz, ($1 ->> 12)::timestamptz::timestamptz, ($1 ->> 13)::bigint::bigint, ($1 ->> 14)::bigint::bigint, ($1 ->> 15)::bigint::bigint, ($1 ->> 16)::timestamptz::timestamptz, ($1 ->> 17)::text::text, ($1 ->> 18)::text::text, ($1 ->> 19)::bigint::bigint, ($1 ->> 20)::timestamptz::timestamptz, ($1 ->> 21)::text::text,
    'initial', 'NONE', '"NONE"', 'null', '[]', '0', 'NONE', '0', '0', '0', 'NONE', '0'
FROM (SELECT 1 FROM hipq_jobtype t, hipq_queue q
WHERE t.xmin = ($1 ->> 22)::xid AND t.ctid = ($1 ->> 23)::tid AND q.xmin = ($1 ->> 24)::xid AND q.ctid = ($1 ->> 25)::tid
FOR KEY SHARE OF t, q) unchanged
ON CONFLICT DO NOTHING
RETURNING id INTO given;
IF set_config('hipq.parents', '', true) = '' THEN RETURN; END IF;
END IF;
INSERT INTO hipq_job (job_data, job_key, queue_id, job_type_id, timeout, scheduled_run_time, priority, throttle_factor, time_windows, rank, deadline, create_time, update_time, origin_id, parent_id, batch_id, hold_time, waiting_key, kept_key, schedule_id, due_time, shard_key, state, outcome, error, result, expects, attempt, phase, has_pending_answer, prefetched, progress, progress_message, extended_seconds) SELECT ($1 -> 0)::jsonb, ($1 ->> 1)::text::text, ($1 ->> 2)::bigint::bigint, ($1 ->> 3)::bigint::bigint, ($1 ->> 4)::double precision::double precision, ($1 ->> 5)::timestamptz::timestamptz, ($1 ->> 6)::integer::integer, ($1 ->> 7)::numeric::numeric, ($1 -> 8)::jsonb, ($1 ->> 9)::bigint::bigint, ($1 ->> 10)::timestamptz::timestamptz, ($1 ->> 11)::timestamptz::timestamptz, ($1 ->> 12)::timestamptz::timestamptz, ($1 ->> 13)::bigint::bigint, ($1 ->> 14)::bigint::bigint, ($1 ->> 15)::bigint::bigint, ($1 ->> 16)::timestamptz::timestamptz, ($1 ->> 17)::text::text, ($1 ->> 18)::text::text, ($1 ->> 19)::bigint::bigint, ($1 ->> 20)::timestamptz::timestamptz, ($1 ->> 21)::text::text,
    'initial', 'NONE', '"NONE"', 'null', '[]', '0', 'NONE', '0', '0', '0', 'NONE', '0'
FROM (SELECT 1 FROM hipq_jobtype t, hipq_queue q
WHERE t.xmin = ($1 ->> 22)::xid AND t.ctid = ($1 ->> 23)::tid AND q.xmin = ($1 ->> 24)::xid AND q.ctid = ($1 ->> 25)::tid) unchanged
ON CONFLICT DO NOTHING
RETURNING id INTO given;
END $$
