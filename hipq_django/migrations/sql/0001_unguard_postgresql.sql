DROP TRIGGER IF EXISTS hipq_job_guard ON hipq_job

-- next statement

DROP FUNCTION IF EXISTS hipq_job_guard_7c345e39()

-- next statement

DROP FUNCTION hipq_job_parents_8723688c() CASCADE

-- next statement

DROP FUNCTION hipq_job_children_785becb1() CASCADE
