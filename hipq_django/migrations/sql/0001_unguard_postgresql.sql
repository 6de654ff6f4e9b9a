DROP TRIGGER IF EXISTS hipq_job_guard ON hipq_job

-- next statement

DROP FUNCTION IF EXISTS hipq_job_guard()

-- next statement

DROP FUNCTION hipq_job_parents() CASCADE

-- next statement

DROP FUNCTION hipq_job_children() CASCADE
