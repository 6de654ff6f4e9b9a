DROP TRIGGER IF EXISTS hipq_job_guard
