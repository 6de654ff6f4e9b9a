CREATE FUNCTION hipq_probe_queues_61c260aa(timestamptz, timestamptz, timestamptz, jsonb, integer, text, jsonb, boolean) RETURNS TABLE ("id" hipq_queue."id"%TYPE, "instance" hipq_queue."instance"%TYPE, "name" hipq_queue."name"%TYPE, "throttle_limit" hipq_queue."throttle_limit"%TYPE, "order" hipq_queue."order"%TYPE, "granularity_seconds" hipq_queue."granularity_seconds"%TYPE, "ageing_seconds" hipq_queue."ageing_seconds"%TYPE, "paused" hipq_queue."paused"%TYPE, "throttler_state" hipq_queue."throttler_state"%TYPE, "throttler_problem" hipq_queue."throttler_problem"%TYPE, "ranking" hipq_queue."ranking"%TYPE, first_rank bigint, has_response boolean, has_error boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT q."id", q."instance", q."name", q."throttle_limit", q."order", q."granularity_seconds", q."ageing_seconds", q."paused", q."throttler_state", q."throttler_problem", q."ranking", CASE
    WHEN q.throttle_limit < 1 THEN (SELECT j.rank FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $1 ORDER BY j.rank, j.id LIMIT 1)
    WHEN COALESCE((SELECT CASE
            WHEN NOT q.is_strict OR j.time_windows <> '[]' THEN 0.001
            WHEN j.throttle_factor > q.throttle_limit THEN q.throttle_limit
            ELSE j.throttle_factor END FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $2 ORDER BY j.rank, j.id LIMIT 1
        ) < q.throttle_limit + 0.0005 - (
            SELECT COALESCE(SUM(j.throttle_factor), 0) FROM hipq_job j
            WHERE j.queue_id = q.id AND j.state IN ('running')
        ), false)
        OR (SELECT j.id FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $3 AND j.throttle_factor = 0 ORDER BY j.rank, j.id LIMIT 1) IS NOT NULL
    THEN -9223372036854775806 END AS first_rank,
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
        (r ->> 3)::bigint AS low FROM (SELECT r FROM jsonb_array_elements($4::jsonb) AS r LIMIT $5) AS e) k
    ON k.id = q.id) q
WHERE q.instance = $6 AND (q.name IN (SELECT * FROM jsonb_array_elements_text($7::jsonb))) = $8
ORDER BY q.id;
END $$

-- next statement

CREATE FUNCTION hipq_lock_8ecabbee(bigint, integer) RETURNS TABLE ("id" hipq_queue."id"%TYPE, "instance" hipq_queue."instance"%TYPE, "name" hipq_queue."name"%TYPE, "throttle_limit" hipq_queue."throttle_limit"%TYPE, "order" hipq_queue."order"%TYPE, "granularity_seconds" hipq_queue."granularity_seconds"%TYPE, "ageing_seconds" hipq_queue."ageing_seconds"%TYPE, "paused" hipq_queue."paused"%TYPE, "throttler_state" hipq_queue."throttler_state"%TYPE, "throttler_problem" hipq_queue."throttler_problem"%TYPE, "ranking" hipq_queue."ranking"%TYPE)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
PERFORM set_config('lock_timeout', '100', true);
PERFORM set_config('idle_in_transaction_session_timeout', $2::text, true)
WHERE current_setting('idle_in_transaction_session_timeout') = '0';
RETURN QUERY SELECT q."id", q."instance", q."name", q."throttle_limit", q."order", q."granularity_seconds", q."ageing_seconds", q."paused", q."throttler_state", q."throttler_problem", q."ranking" FROM hipq_queue q WHERE q.id = $1 FOR NO KEY UPDATE SKIP LOCKED;
END $$

-- next statement

CREATE FUNCTION hipq_first_page_78d2cb41(bigint, bigint, bigint, bigint, timestamptz, bigint, bigint, bigint, timestamptz, integer) RETURNS TABLE (id hipq_job.id%TYPE, queue_id hipq_job.queue_id%TYPE, job_type_id hipq_job.job_type_id%TYPE, job_data hipq_job.job_data%TYPE, job_key hipq_job.job_key%TYPE, state hipq_job.state%TYPE, timeout hipq_job.timeout%TYPE, error hipq_job.error%TYPE, attempt hipq_job.attempt%TYPE, scheduled_run_time bigint, priority hipq_job.priority%TYPE, throttle_factor hipq_job.throttle_factor%TYPE, time_windows hipq_job.time_windows%TYPE, rank hipq_job.rank%TYPE, has_pending_answer hipq_job.has_pending_answer%TYPE, origin_id hipq_job.origin_id%TYPE, create_time bigint, schedule_id hipq_job.schedule_id%TYPE, due_time bigint, load numeric, has_critical boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT j.id, j.queue_id, j.job_type_id, j.job_data, j.job_key, j.state, j.timeout, j.error, j.attempt, (EXTRACT(EPOCH FROM j.scheduled_run_time) * 1000000)::bigint, j.priority, j.throttle_factor, j.time_windows, j.rank, j.has_pending_answer, j.origin_id, (EXTRACT(EPOCH FROM j.create_time) * 1000000)::bigint, j.schedule_id, (EXTRACT(EPOCH FROM j.due_time) * 1000000)::bigint 
, (SELECT SUM(j.throttle_factor) FROM hipq_job j
    WHERE j.queue_id = $1 AND j.state IN ('running')) AS load
, (SELECT j.id FROM hipq_job j WHERE j.queue_id = $2 AND j.state IN ('initial', 'retry') AND j.rank BETWEEN $3 AND $4 AND j.scheduled_run_time <= $5 AND j.throttle_factor = 0 ORDER BY j.rank, j.id LIMIT 1) IS NOT NULL AS has_critical FROM hipq_job j
WHERE j.queue_id = $6 AND j.state IN ('initial', 'retry') AND j.rank BETWEEN $7 AND $8 AND j.scheduled_run_time <= $9 
ORDER BY j.rank, j.id LIMIT $10 FOR NO KEY UPDATE SKIP LOCKED;
END $$

-- next statement

CREATE FUNCTION hipq_due_ceb3639a(bigint, bigint, bigint, timestamptz, bigint, integer) RETURNS TABLE (id hipq_job.id%TYPE, queue_id hipq_job.queue_id%TYPE, job_type_id hipq_job.job_type_id%TYPE, job_data hipq_job.job_data%TYPE, job_key hipq_job.job_key%TYPE, state hipq_job.state%TYPE, timeout hipq_job.timeout%TYPE, error hipq_job.error%TYPE, attempt hipq_job.attempt%TYPE, scheduled_run_time bigint, priority hipq_job.priority%TYPE, throttle_factor hipq_job.throttle_factor%TYPE, time_windows hipq_job.time_windows%TYPE, rank hipq_job.rank%TYPE, has_pending_answer hipq_job.has_pending_answer%TYPE, origin_id hipq_job.origin_id%TYPE, create_time bigint, schedule_id hipq_job.schedule_id%TYPE, due_time bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT j.id, j.queue_id, j.job_type_id, j.job_data, j.job_key, j.state, j.timeout, j.error, j.attempt, (EXTRACT(EPOCH FROM j.scheduled_run_time) * 1000000)::bigint, j.priority, j.throttle_factor, j.time_windows, j.rank, j.has_pending_answer, j.origin_id, (EXTRACT(EPOCH FROM j.create_time) * 1000000)::bigint, j.schedule_id, (EXTRACT(EPOCH FROM j.due_time) * 1000000)::bigint  FROM hipq_job j
WHERE j.queue_id = $1 AND j.state IN ('initial', 'retry') AND j.rank BETWEEN $2 AND $3 AND j.scheduled_run_time <= $4 AND (SELECT NOT u.paused AND u.throttle_limit < 1 FROM hipq_queue u WHERE u.id = $5)
ORDER BY j.rank, j.id LIMIT $6 FOR NO KEY UPDATE SKIP LOCKED;
END $$

-- next statement

CREATE FUNCTION hipq_claim_due_727849bb(bigint[], bigint[], bigint[], bigint[], timestamptz, integer, integer, bigint, bigint, timestamptz, timestamptz, bigint, bigint) RETURNS TABLE (id hipq_job.id%TYPE, queue_id hipq_job.queue_id%TYPE, job_type_id hipq_job.job_type_id%TYPE, job_data hipq_job.job_data%TYPE, job_key hipq_job.job_key%TYPE, state hipq_job.state%TYPE, timeout hipq_job.timeout%TYPE, error hipq_job.error%TYPE, attempt hipq_job.attempt%TYPE, scheduled_run_time bigint, priority hipq_job.priority%TYPE, throttle_factor hipq_job.throttle_factor%TYPE, time_windows hipq_job.time_windows%TYPE, rank hipq_job.rank%TYPE, has_pending_answer hipq_job.has_pending_answer%TYPE, origin_id hipq_job.origin_id%TYPE, create_time bigint, schedule_id hipq_job.schedule_id%TYPE, due_time bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY WITH head AS MATERIALIZED (
SELECT q.turn, j.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
    WITH ORDINALITY AS q(id, low, high, turn)
CROSS JOIN LATERAL (
SELECT j.id, j.rank, j.throttle_factor, j.job_type_id, j.job_key,
    j.has_pending_answer OR j.time_windows <> '[]' OR j.job_type_id <> ALL ($4::bigint[])
        OR (j.state = 'retry' AND (starts_with(j.error::text, '"WorkerLost')
            OR starts_with(j.error::text, '"Waits for another release')))
        AS needs_check
FROM hipq_job j WHERE j.queue_id = q.id AND j.state IN ('initial', 'retry') AND j.rank BETWEEN q.low AND q.high AND j.scheduled_run_time <= $5
    AND (SELECT NOT u.paused AND u.throttle_limit < 1 FROM hipq_queue u WHERE u.id = q.id)
    ORDER BY j.rank, j.id LIMIT $6 FOR NO KEY UPDATE SKIP LOCKED) j
LIMIT $7
), left_jobs AS MATERIALIZED (
    SELECT DISTINCT ON (turn) turn, rank, id FROM head
    WHERE false OR needs_check
        OR CASE WHEN job_key <> 'NONE' THEN (SELECT found FROM hipq_is_early_24cd5092(job_key, job_type_id)) ELSE false END
    ORDER BY turn, rank, id
), places AS MATERIALIZED (
    SELECT id, turn, rank FROM head WHERE NOT EXISTS (SELECT 1 FROM left_jobs l
        WHERE l.turn = head.turn AND (l.rank, l.id) <= (head.rank, head.id))
)

UPDATE hipq_job AS j SET state = 'running', error = '"NONE"', phase = 'request', progress = 0.0, progress_message = 'NONE', extended_seconds = 0.0, worker_id = $8, last_worker_id = $9, update_time = $10,
    attempt = j.attempt + 1, deadline = ($11::timestamptz + j.timeout * interval '1 second'), prefetched = j.id <> ALL (ARRAY(SELECT id FROM places ORDER BY turn, rank, id LIMIT $12))
WHERE j.id = ANY (ARRAY(SELECT id FROM places)) AND j.state || '' IN ('initial', 'retry') AND (SELECT w.state IN ('running', 'stopping') FROM hipq_worker w WHERE w.id = $13)
RETURNING j.id, j.queue_id, j.job_type_id, j.job_data, j.job_key, j.state, j.timeout, j.error, j.attempt, (EXTRACT(EPOCH FROM j.scheduled_run_time) * 1000000)::bigint, j.priority, j.throttle_factor, j.time_windows, j.rank, j.has_pending_answer, j.origin_id, (EXTRACT(EPOCH FROM j.create_time) * 1000000)::bigint, j.schedule_id, (EXTRACT(EPOCH FROM j.due_time) * 1000000)::bigint;
END $$

-- next statement

CREATE FUNCTION hipq_claim_fitting_a374d6a4(bigint[], bigint, bigint, bigint, timestamptz, integer, bigint, bigint, bigint, bigint, timestamptz, bigint, bigint, timestamptz, timestamptz, bigint, bigint) RETURNS TABLE (id hipq_job.id%TYPE, queue_id hipq_job.queue_id%TYPE, job_type_id hipq_job.job_type_id%TYPE, job_data hipq_job.job_data%TYPE, job_key hipq_job.job_key%TYPE, state hipq_job.state%TYPE, timeout hipq_job.timeout%TYPE, error hipq_job.error%TYPE, attempt hipq_job.attempt%TYPE, scheduled_run_time bigint, priority hipq_job.priority%TYPE, throttle_factor hipq_job.throttle_factor%TYPE, time_windows hipq_job.time_windows%TYPE, rank hipq_job.rank%TYPE, has_pending_answer hipq_job.has_pending_answer%TYPE, origin_id hipq_job.origin_id%TYPE, create_time bigint, schedule_id hipq_job.schedule_id%TYPE, due_time bigint)
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
SELECT q.throttle_limit - COALESCE((SELECT SUM(j.throttle_factor) FROM hipq_job j
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

CREATE FUNCTION hipq_claim_48ba31bd(bigint, bigint, timestamptz, timestamptz, bigint[], bigint[], bigint) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY UPDATE hipq_job AS j SET state = 'running', error = '"NONE"', phase = 'request', progress = 0.0, progress_message = 'NONE', extended_seconds = 0.0, worker_id = $1, last_worker_id = $2, update_time = $3,
    attempt = j.attempt + 1, deadline = ($4::timestamptz + j.timeout * interval '1 second'), prefetched = j.id <> ALL ($5::bigint[])
WHERE j.id = ANY ($6::bigint[]) AND j.state || '' IN ('initial', 'retry') AND (SELECT w.state IN ('running', 'stopping') FROM hipq_worker w WHERE w.id = $7) RETURNING j.id;
END $$

-- next statement

CREATE FUNCTION hipq_finish_21dc8b13(bigint[], integer[], jsonb, boolean[], integer, timestamptz, bigint) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_seqscan = off SET lock_timeout = '20ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY WITH v AS (SELECT * FROM ROWS FROM (unnest($1::bigint[]), unnest($2::integer[]),
jsonb_array_elements($3::jsonb), unnest($4::boolean[]))
AS v(id, attempt, result, is_request) LIMIT $5)
UPDATE hipq_job SET state = 'final', outcome = 'succeeded', has_pending_answer = false, progress = 100.0, result = v.result, worker_id = NULL, phase = 'NONE', update_time = $6 FROM v
WHERE hipq_job.id = v.id AND hipq_job.id = ANY (ARRAY(SELECT id FROM v)) AND hipq_job.state || '' = 'running'
    AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = $7 AND NOT (hipq_job.has_pending_answer AND v.is_request)
RETURNING hipq_job.id;
END $$

-- next statement

CREATE FUNCTION hipq_park_c851c141(jsonb, integer, timestamptz, bigint) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_seqscan = off SET lock_timeout = '20ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY WITH v AS (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS attempt FROM (SELECT r FROM jsonb_array_elements($1::jsonb) AS r LIMIT $2) AS e)
UPDATE hipq_job SET worker_id = NULL, phase = 'NONE', expects = '[]', update_time = $3 FROM v
WHERE hipq_job.id = v.id AND hipq_job.id = ANY (ARRAY(SELECT id FROM v)) AND hipq_job.state || '' = 'running'
    AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = $4 AND NOT (false)
RETURNING hipq_job.id;
END $$

-- next statement

CREATE FUNCTION hipq_fail_c8d6bb83(jsonb, integer, timestamptz, bigint, jsonb, timestamptz, text) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET lock_timeout = '20ms' AS $$
#variable_conflict use_column
BEGIN
PERFORM set_config('enable_seqscan', 'off', true);
RETURN QUERY WITH failed AS (
WITH v AS (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS attempt, (r ->> 2)::boolean AS is_request, (r ->> 3)::text AS state, (r ->> 4)::text AS outcome, (r ->> 5)::boolean AS is_kept, (r -> 6) AS error, (r -> 7) AS exception_classes, (r ->> 8)::text AS traceback, (r ->> 9)::timestamptz AS start_time, (r ->> 10)::integer AS failures FROM (SELECT r FROM jsonb_array_elements($1::jsonb) AS r LIMIT $2) AS e)
UPDATE hipq_job SET 
    state = v.state, outcome = v.outcome, error = v.error,
    worker_id = CASE WHEN v.is_kept THEN hipq_job.worker_id END,
    phase = CASE WHEN v.is_kept THEN 'decision' ELSE 'NONE' END,
    has_pending_answer = hipq_job.has_pending_answer AND v.state = 'error',
    update_time = $3 FROM v
WHERE hipq_job.id = v.id AND hipq_job.id = ANY (ARRAY(SELECT id FROM v)) AND hipq_job.state || '' = 'running'
    AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = $4 AND NOT (hipq_job.has_pending_answer AND v.is_request)
RETURNING hipq_job.id, v.attempt, v.error, v.exception_classes, v.traceback, v.start_time, v.failures), noted AS (
INSERT INTO hipq_attempt (job_id, attempt, kind, error, exception_classes, traceback,
    start_time, end_time, worker, failures, losses, interrupted,
    lost_decisions)
SELECT id, attempt, 'raised', error, exception_classes, $5::jsonb ->> traceback::integer, start_time, $6, $7,
    CASE WHEN failures > 0 THEN failures WHEN attempt = 1 THEN 1
        ELSE 1 + COALESCE((SELECT a.failures FROM hipq_attempt a
            WHERE a.job_id = failed.id AND a.attempt < failed.attempt
            ORDER BY a.attempt DESC LIMIT 1), 0) END, 0, 0, 0
FROM failed failed WHERE true
ON CONFLICT DO NOTHING)
SELECT id FROM failed;
END $$

-- next statement

CREATE FUNCTION hipq_conclude_e8fd2191(jsonb, integer, timestamptz, bigint) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_nestloop = off SET enable_seqscan = off SET lock_timeout = '20ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY WITH v AS (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS attempt, (r ->> 2)::text AS state, (r ->> 3)::text AS outcome, (r ->> 4)::timestamptz AS scheduled_run_time, (r ->> 5)::bigint AS rank FROM (SELECT r FROM jsonb_array_elements($1::jsonb) AS r LIMIT $2) AS e)
UPDATE hipq_job SET 
    state = v.state, outcome = v.outcome, worker_id = NULL, phase = 'NONE',
    has_pending_answer = hipq_job.has_pending_answer AND v.state = 'retry',
    update_time = $3,
    scheduled_run_time = COALESCE(v.scheduled_run_time, hipq_job.scheduled_run_time),
    rank = COALESCE(v.rank, hipq_job.rank) FROM v
WHERE hipq_job.id = v.id AND hipq_job.id = ANY (ARRAY(SELECT id FROM v)) AND hipq_job.state || '' = 'error'
    AND hipq_job.attempt = v.attempt AND hipq_job.worker_id = $4 AND NOT (false)
RETURNING hipq_job.id;
END $$

-- next statement

CREATE FUNCTION hipq_failures_bb304e2a(jsonb, integer) RETURNS TABLE (id bigint, failures integer)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT v.id, (SELECT a.failures FROM hipq_attempt a WHERE a.job_id = v.id
    ORDER BY a.attempt DESC LIMIT 1)
FROM (SELECT (r ->> 0)::bigint AS id FROM (SELECT r FROM jsonb_array_elements($1::jsonb) AS r LIMIT $2) AS e) v;
END $$

-- next statement

CREATE FUNCTION hipq_has_overdue_04c0b153(timestamptz, text) RETURNS TABLE (found boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT COUNT(*) > 0 FROM hipq_queue q WHERE (
    SELECT j.id FROM hipq_job j
    WHERE j.queue_id = q.id AND j.state IN ('running') AND j.deadline < $1
    ORDER BY j.deadline LIMIT 1
) IS NOT NULL AND q.instance = $2;
END $$

-- next statement

CREATE FUNCTION hipq_has_early_1d75dcce(text) RETURNS TABLE (found boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT (SELECT a.id FROM hipq_answer a
    WHERE a.status = 'early' AND a.job_id IS NULL AND a.instance = $1
    ORDER BY a.job_type, a.job_key LIMIT 1) IS NOT NULL;
END $$

-- next statement

CREATE FUNCTION hipq_is_early_24cd5092(text, bigint) RETURNS TABLE (found boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT (SELECT a.id FROM hipq_answer a WHERE a.status = 'early'
    AND a.job_type BETWEEN t.name AND t.name AND a.job_key BETWEEN $1 AND $1
    AND a.instance = t.instance
    ORDER BY a.job_type, a.job_key LIMIT 1) IS NOT NULL
FROM hipq_jobtype t WHERE t.id = $2;
END $$

-- next statement

CREATE FUNCTION hipq_free_16f32139(bigint[]) RETURNS TABLE (id bigint)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET lock_timeout = '20ms' AS $$
#variable_conflict use_column
BEGIN
RETURN QUERY SELECT j.id FROM hipq_job j WHERE j.id = ANY ($1)
ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED;
END $$

-- next statement

CREATE PROCEDURE hipq_settle_by_key_a4efa5f2(jsonb, OUT given jsonb)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
WITH done AS (UPDATE hipq_job AS j SET state = CASE WHEN v.handled THEN j.state ELSE 'final' END, outcome = CASE WHEN v.handled THEN j.outcome ELSE 'succeeded' END, has_pending_answer = CASE WHEN v.handled THEN true ELSE false END, progress = CASE WHEN v.handled THEN j.progress ELSE 100.0 END, result = CASE WHEN v.handled THEN j.result ELSE v.result END, update_time = ($1 ->> 0)::timestamptz FROM (SELECT ($1 ->> 1)::text::text AS job_key, ($1 ->> 2)::text::text AS message_id, ($1 -> 3)::jsonb AS result, ($1 ->> 4)::boolean::boolean AS handled) v WHERE j.job_type_id = (SELECT t.id FROM hipq_jobtype t WHERE t.instance = ($1 ->> 5)::text AND t.name = ($1 ->> 6)::text) AND j.job_key = v.job_key AND NOT (j.state = 'final') AND NOT (j.job_key = 'NONE') AND j.state || '' = 'running' AND j.phase = 'NONE' AND NOT j.has_pending_answer AND j.expects = '[]' AND (SELECT 1 FROM hipq_answer a WHERE a.job_id = j.id LIMIT 1) IS NULL AND (v.handled OR NOT (SELECT t.has_response_handler FROM hipq_jobtype t WHERE t.id = j.job_type_id)) RETURNING j.id, j.job_key, j.attempt, v.message_id, v.result) INSERT INTO hipq_answer (instance, job_type, part, kind, problem, status, receive_time, job_id, job_key, attempt, message_id, payload) SELECT ($1 ->> 7)::text, ($1 ->> 8)::text, '', 'response', 'NONE', 'accepted', ($1 ->> 9)::timestamptz, done.* FROM done RETURNING jsonb_build_array(id, job_id, job_key, attempt, (SELECT queue_id FROM hipq_job WHERE id = job_id)) INTO given;
END $$

-- next statement

CREATE PROCEDURE hipq_settle_by_attempt_a403132e(jsonb, OUT given jsonb)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
WITH done AS (UPDATE hipq_job AS j SET state = CASE WHEN v.handled THEN j.state ELSE 'final' END, outcome = CASE WHEN v.handled THEN j.outcome ELSE 'succeeded' END, has_pending_answer = CASE WHEN v.handled THEN true ELSE false END, progress = CASE WHEN v.handled THEN j.progress ELSE 100.0 END, result = CASE WHEN v.handled THEN j.result ELSE v.result END, update_time = ($1 ->> 0)::timestamptz FROM (SELECT ($1 ->> 1)::text::text AS job_key, ($1 ->> 2)::text::text AS message_id, ($1 -> 3)::jsonb AS result, ($1 ->> 4)::boolean::boolean AS handled) v WHERE j.id = ($1 ->> 5)::bigint AND j.attempt = ($1 ->> 6)::integer AND j.state || '' = 'running' AND j.phase = 'NONE' AND NOT j.has_pending_answer AND j.expects = '[]' AND (SELECT 1 FROM hipq_answer a WHERE a.job_id = j.id LIMIT 1) IS NULL AND (v.handled OR NOT (SELECT t.has_response_handler FROM hipq_jobtype t WHERE t.id = j.job_type_id)) RETURNING j.id, j.job_key, j.attempt, v.message_id, v.result) INSERT INTO hipq_answer (instance, job_type, part, kind, problem, status, receive_time, job_id, job_key, attempt, message_id, payload) SELECT ($1 ->> 7)::text, ($1 ->> 8)::text, '', 'response', 'NONE', 'accepted', ($1 ->> 9)::timestamptz, done.* FROM done RETURNING jsonb_build_array(id, job_id, job_key, attempt, (SELECT queue_id FROM hipq_job WHERE id = job_id)) INTO given;
END $$
