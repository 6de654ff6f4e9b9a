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

-- next statement

CREATE FUNCTION hipq_lock_f8f7deed(bigint, integer) RETURNS TABLE ("id" hipq_queue."id"%TYPE, "instance" hipq_queue."instance"%TYPE, "name" hipq_queue."name"%TYPE, "throttle_limit" hipq_queue."throttle_limit"%TYPE, "order" hipq_queue."order"%TYPE, "granularity_seconds" hipq_queue."granularity_seconds"%TYPE, "ageing_seconds" hipq_queue."ageing_seconds"%TYPE, "paused" hipq_queue."paused"%TYPE, "throttler_state" hipq_queue."throttler_state"%TYPE, "throttler_problem" hipq_queue."throttler_problem"%TYPE, "ranking" hipq_queue."ranking"%TYPE, "share" hipq_queue."share"%TYPE)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
PERFORM set_config('lock_timeout', '100', true);
PERFORM set_config('idle_in_transaction_session_timeout', $2::text, true)
WHERE current_setting('idle_in_transaction_session_timeout') = '0';
RETURN QUERY SELECT q."id", q."instance", q."name", q."throttle_limit", q."order", q."granularity_seconds", q."ageing_seconds", q."paused", q."throttler_state", q."throttler_problem", q."ranking", q."share" FROM hipq_queue q WHERE q.id = $1 FOR NO KEY UPDATE SKIP LOCKED;
END $$

-- next statement

CREATE FUNCTION hipq_claim_fitting_986840b5(bigint[], bigint, bigint, bigint, timestamptz, integer, bigint, bigint, bigint, bigint, timestamptz, bigint, bigint, timestamptz, timestamptz, bigint, bigint) RETURNS TABLE (id hipq_job.id%TYPE, queue_id hipq_job.queue_id%TYPE, job_type_id hipq_job.job_type_id%TYPE, job_data hipq_job.job_data%TYPE, job_key hipq_job.job_key%TYPE, state hipq_job.state%TYPE, timeout hipq_job.timeout%TYPE, error hipq_job.error%TYPE, attempt hipq_job.attempt%TYPE, scheduled_run_time bigint, priority hipq_job.priority%TYPE, throttle_factor hipq_job.throttle_factor%TYPE, time_windows hipq_job.time_windows%TYPE, rank hipq_job.rank%TYPE, has_pending_answer hipq_job.has_pending_answer%TYPE, origin_id hipq_job.origin_id%TYPE, create_time bigint, schedule_id hipq_job.schedule_id%TYPE, due_time bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
PERFORM 1 FROM hipq_queue q WHERE q.id = $2 FOR NO KEY UPDATE SKIP LOCKED;
IF NOT FOUND THEN RETURN; END IF;
RETURN QUERY WITH head AS MATERIALIZED (
SELECT 1 AS turn, j.*, SUM(throttle_factor) OVER (ORDER BY rank, id) AS sum
FROM (
SELECT j.id, j.rank, j.throttle_factor, j.job_type_id, j.job_key,
    j.has_pending_answer OR j.time_windows <> '[]' OR j.job_type_id <> ALL ($1::bigint[])
        OR (j.state = 'retry' AND (starts_with(j.error::text, '"WorkerLost')
            OR starts_with(j.error::text, '"Waits for another release')))
        AS needs_check
FROM hipq_job j WHERE j.queue_id = $2 AND j.state IN ('initial', 'retry') AND j.rank BETWEEN $3 AND $4 AND j.scheduled_run_time <= $5
    ORDER BY j.rank, j.id LIMIT $6 FOR NO KEY UPDATE SKIP LOCKED) j
), left_jobs AS MATERIALIZED (
    SELECT DISTINCT ON (turn) turn, rank, id FROM head
    WHERE COALESCE(sum > (
SELECT COALESCE(q.share, q.throttle_limit) - COALESCE((
    SELECT SUM(j.throttle_factor) FROM hipq_job j
    WHERE j.queue_id = q.id AND j.state IN ('running')), 0)
FROM hipq_queue q WHERE q.id = $7 AND NOT q.paused AND q.throttle_limit >= 1
    AND (SELECT j.id FROM hipq_job j WHERE j.queue_id = $8 AND j.state IN ('initial', 'retry') AND j.rank BETWEEN $9 AND $10 AND j.scheduled_run_time <= $11 AND j.throttle_factor = 0 ORDER BY j.rank, j.id LIMIT 1) IS NULL), true) OR needs_check
        OR CASE WHEN job_key <> 'NONE' THEN (SELECT found FROM hipq_is_early_24cd5092(job_key, job_type_id)) ELSE false END
    ORDER BY turn, rank, id
), places AS MATERIALIZED (
    SELECT id, turn, rank FROM head WHERE NOT EXISTS (SELECT 1 FROM left_jobs l
        WHERE l.turn = head.turn AND (l.rank, l.id) <= (head.rank, head.id))
)

UPDATE hipq_job AS j SET state = 'running', error = '"NONE"', phase = 'request', progress = 0.0, progress_message = 'NONE', extended_seconds = 0.0, worker_id = $12, last_worker_id = $13, update_time = $14,
    attempt = j.attempt + 1, deadline = ($15::timestamptz + j.timeout * interval '1 second'), prefetched = j.id <> ALL (ARRAY(SELECT id FROM places ORDER BY turn, rank, id LIMIT $16))
WHERE j.id = ANY (ARRAY(SELECT id FROM places)) AND j.state || '' IN ('initial', 'retry') AND (SELECT w.state IN ('running', 'stopping') FROM hipq_worker w WHERE w.id = $17)
RETURNING j.id, j.queue_id, j.job_type_id, j.job_data, j.job_key, j.state, j.timeout, j.error, j.attempt, (EXTRACT(EPOCH FROM j.scheduled_run_time) * 1000000)::bigint, j.priority, j.throttle_factor, j.time_windows, j.rank, j.has_pending_answer, j.origin_id, (EXTRACT(EPOCH FROM j.create_time) * 1000000)::bigint, j.schedule_id, (EXTRACT(EPOCH FROM j.due_time) * 1000000)::bigint;
END $$

-- next statement

CREATE FUNCTION hipq_probe_queues_10c4f152(timestamptz, timestamptz, timestamptz, timestamptz, jsonb, integer, text, jsonb, boolean) RETURNS TABLE ("id" hipq_queue."id"%TYPE, "instance" hipq_queue."instance"%TYPE, "name" hipq_queue."name"%TYPE, "throttle_limit" hipq_queue."throttle_limit"%TYPE, "order" hipq_queue."order"%TYPE, "granularity_seconds" hipq_queue."granularity_seconds"%TYPE, "ageing_seconds" hipq_queue."ageing_seconds"%TYPE, "paused" hipq_queue."paused"%TYPE, "throttler_state" hipq_queue."throttler_state"%TYPE, "throttler_problem" hipq_queue."throttler_problem"%TYPE, "ranking" hipq_queue."ranking"%TYPE, "share" hipq_queue."share"%TYPE, first_rank bigint, has_response boolean, has_error boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT q."id", q."instance", q."name", q."throttle_limit", q."order", q."granularity_seconds", q."ageing_seconds", q."paused", q."throttler_state", q."throttler_problem", q."ranking", q."share", CASE
    WHEN q.throttle_limit < 1 THEN (SELECT j.rank FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $1 ORDER BY j.rank, j.id LIMIT 1)
    WHEN COALESCE((SELECT CASE
            WHEN NOT q.is_strict OR j.time_windows <> '[]' THEN 0.001
            WHEN j.throttle_factor > q.throttle_limit THEN q.throttle_limit
            ELSE j.throttle_factor END FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $2 ORDER BY j.rank, j.id LIMIT 1
        ) < COALESCE(q.share, q.throttle_limit) + 0.0005 - (
            SELECT COALESCE(SUM(j.throttle_factor), 0) FROM hipq_job j
            WHERE j.queue_id = q.id AND j.state IN ('running')
        ), false)
        OR (SELECT j.id FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $3 AND j.throttle_factor = 0 ORDER BY j.rank, j.id LIMIT 1) IS NOT NULL
    THEN -9223372036854775806
    WHEN q.share IS NOT NULL THEN (SELECT 9223372036854775807 FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $4 ORDER BY j.rank, j.id LIMIT 1) END AS first_rank,
    (SELECT j.id FROM hipq_job j WHERE j.queue_id BETWEEN q.id AND q.id AND
        j.state IN ('running') AND j.has_pending_answer AND j.worker_id IS NULL
        ORDER BY j.queue_id, j.id LIMIT 1) IS NOT NULL AS has_response,
    (SELECT j.id FROM hipq_job j WHERE j.queue_id BETWEEN q.id AND q.id AND
        j.state IN ('error') AND j.worker_id IS NULL
        ORDER BY j.queue_id, j.id LIMIT 1) IS NOT NULL AS has_error
FROM (SELECT q.*, COALESCE(k.high, 9223372036854775806) AS high,
        COALESCE(k.is_strict, false) AS is_strict,
        COALESCE(k.low, -9223372036854775806) AS low FROM hipq_queue q
    LEFT JOIN (SELECT (r ->> 0)::bigint AS id,
        (r ->> 1)::bigint AS high,
        (r ->> 2)::boolean AS is_strict,
        (r ->> 3)::bigint AS low FROM (SELECT r FROM jsonb_array_elements($5::jsonb) AS r LIMIT $6) AS e) k
    ON k.id = q.id) q
WHERE q.instance = $7 AND (q.name IN (SELECT * FROM jsonb_array_elements_text($8::jsonb))) = $9
ORDER BY q.id;
END $$
