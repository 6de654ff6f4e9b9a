CREATE TRIGGER hipq_job_guard BEFORE UPDATE ON hipq_job FOR EACH ROW WHEN (
    NEW.attempt < OLD.attempt
    OR NEW.create_time <> OLD.create_time
    OR NEW.queue_id <> OLD.queue_id
    OR NEW.job_type_id <> OLD.job_type_id
    -- One by one: of a list in brackets SQLite would make a table for each row that is written.
    OR NOT CASE OLD.state
        WHEN 'initial' THEN NEW.state = 'initial' OR NEW.state = 'running'
        WHEN 'running' THEN NEW.state = 'running' OR NEW.state = 'error' OR NEW.state = 'final'
        WHEN 'error' THEN NEW.state = 'error' OR NEW.state = 'retry' OR NEW.state = 'final'
        WHEN 'retry' THEN NEW.state = 'retry' OR NEW.state = 'running'
        ELSE false
    END
) BEGIN
    SELECT RAISE(ABORT, 'hipq: a final job never changes, moves go as the state machine says, attempts only grow, queue and type stay');
END
