-- The ranges of columns: the server reads the text of a check anew for each statement, that of a
-- domain once for each session.
CREATE DOMAIN hipq_timeout AS double precision
    CONSTRAINT hipq_job_ranges CHECK (VALUE > 0 AND VALUE <= 400000000)

-- next statement

CREATE DOMAIN hipq_percent AS double precision
    CONSTRAINT hipq_job_ranges CHECK (VALUE BETWEEN 0 AND 100)

-- next statement

CREATE DOMAIN hipq_seconds AS double precision
    CONSTRAINT hipq_job_ranges CHECK (VALUE >= 0)

-- next statement

CREATE DOMAIN hipq_priority AS integer
    CONSTRAINT hipq_job_ranges CHECK (VALUE BETWEEN -1000000 AND 1000000)

-- next statement

CREATE DOMAIN hipq_factor AS numeric(12, 3)
    CONSTRAINT hipq_job_ranges CHECK (VALUE >= 0)

-- next statement

CREATE DOMAIN hipq_key AS varchar(255)
    CONSTRAINT hipq_job_ranges CHECK (VALUE <> '')

-- next statement

ALTER TABLE hipq_job DROP CONSTRAINT hipq_job_ranges,
    ALTER COLUMN timeout TYPE hipq_timeout,
    ALTER COLUMN progress TYPE hipq_percent,
    ALTER COLUMN extended_seconds TYPE hipq_seconds,
    ALTER COLUMN priority TYPE hipq_priority,
    ALTER COLUMN throttle_factor TYPE hipq_factor,
    ALTER COLUMN job_key TYPE hipq_key

-- next statement

-- The check of the states is one of several columns, so its domain is one of rows.
CREATE TYPE hipq_row_of_state AS (
    state text, outcome text, phase text, has_error boolean, worker_id bigint, attempt integer
)

-- next statement

CREATE DOMAIN hipq_state AS hipq_row_of_state CONSTRAINT hipq_job_fits_state CHECK (
    (VALUE).state || '/' || (VALUE).outcome || '/' || (VALUE).phase
        || CASE WHEN (VALUE).has_error THEN '/error' ELSE '' END
        || CASE WHEN (VALUE).worker_id IS NULL THEN '' ELSE '/worker' END
        = ANY ('{initial/NONE/NONE,running/NONE/NONE,running/NONE/request/worker,running/NONE/response/worker,error/NONE/NONE/error,error/NONE/decision/error/worker,retry/NONE/NONE/error,final/succeeded/NONE,final/failed/NONE/error,final/timed_out/NONE/error,final/cancelled/NONE,final/cancelled/NONE/error}'::text[])
    AND ((VALUE).attempt = 0 OR NOT (VALUE).state = 'initial')
)

-- next statement

ALTER TABLE hipq_job DROP CONSTRAINT hipq_job_fits_state,
    ADD CONSTRAINT hipq_job_fits_state CHECK (
        ROW(state, outcome, phase, error <> '"NONE"', worker_id, attempt)::hipq_state
        IS DISTINCT FROM NULL
    )

-- next statement

CREATE FUNCTION hipq_job_guard_7c345e39() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = format(
        'hipq: a final job never changes, moves go as the state machine says, attempts only grow, queue and type stay (job %s, %s to %s)', OLD.id, OLD.state, NEW.state);
END $$

-- next statement

CREATE TRIGGER hipq_job_guard AFTER UPDATE ON hipq_job FOR EACH ROW WHEN (NEW.attempt < OLD.attempt OR NEW.create_time <> OLD.create_time OR NEW.queue_id <> OLD.queue_id OR NEW.job_type_id <> OLD.job_type_id OR OLD.state || '>' || NEW.state <> ALL ('{initial>initial,initial>running,running>running,running>error,running>final,error>error,error>final,error>retry,retry>retry,retry>running}'::text[])) EXECUTE FUNCTION hipq_job_guard_7c345e39()

-- next statement

CREATE FUNCTION hipq_job_parents_8723688c() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE job record;
BEGIN
    FOR job IN SELECT DISTINCT queue_id, job_type_id FROM fresh LOOP
        PERFORM 1 FROM hipq_queue q, hipq_jobtype t
            WHERE q.id = job.queue_id AND t.id = job.job_type_id FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING
                MESSAGE = 'hipq: a job has no queue or no type',
                HINT = 'In a fixture, load queues and job types before their jobs.';
        END IF;
    END LOOP;
    RETURN NULL;
END $$

-- next statement

-- Not in a restore by pg_dump, which empties the search path, and not where the function that
-- inserts has locked both rows itself.
CREATE TRIGGER hipq_job_parents AFTER INSERT ON hipq_job REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT WHEN (current_setting('search_path') <> '' AND current_setting('hipq.parents', true) IS DISTINCT FROM 'locked') EXECUTE FUNCTION hipq_job_parents_8723688c()

-- next statement

CREATE FUNCTION hipq_job_children_785becb1() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE needed boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM hipq_job WHERE %I = $1)', TG_ARGV[0])
        INTO needed USING OLD.id;
    IF needed THEN
        RAISE foreign_key_violation USING MESSAGE = format(
            'hipq: row %s of %I is still needed by jobs', OLD.id, TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END $$

-- next statement

CREATE TRIGGER hipq_job_children AFTER DELETE OR UPDATE OF id ON hipq_queue FOR EACH ROW EXECUTE FUNCTION hipq_job_children_785becb1('queue_id')

-- next statement

CREATE TRIGGER hipq_job_children AFTER DELETE OR UPDATE OF id ON hipq_jobtype FOR EACH ROW EXECUTE FUNCTION hipq_job_children_785becb1('job_type_id')

-- next statement

DO $$ DECLARE home name; BEGIN
    SELECT relnamespace::regnamespace INTO home FROM pg_class
        WHERE oid = 'hipq_job'::regclass;
    EXECUTE format(
        'ALTER FUNCTION hipq_job_parents_8723688c() SET search_path = pg_catalog, %s, pg_temp', home);
END $$

-- next statement

DO $$ DECLARE home name; BEGIN
    SELECT relnamespace::regnamespace INTO home FROM pg_class
        WHERE oid = 'hipq_job'::regclass;
    EXECUTE format(
        'ALTER FUNCTION hipq_job_children_785becb1() SET search_path = pg_catalog, %s, pg_temp', home);
END $$

-- next statement

ALTER TABLE hipq_job SET (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
)
