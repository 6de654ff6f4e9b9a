-- Functions and types stay where the tables are dropped by hand, and when the tables are unapplied.
DO $$ DECLARE leftover record; home oid; BEGIN
    SELECT oid INTO home FROM pg_namespace WHERE nspname = current_schema();
    FOR leftover IN
        SELECT 1 AS place, 'ROUTINE' AS kind, oid::regprocedure::text AS name FROM pg_proc
            WHERE pronamespace = home AND proname ~ '^hipq_.*_[0-9a-f]{8}$'
        UNION ALL
        SELECT 2, 'DOMAIN', typname FROM pg_type WHERE typnamespace = home AND typname IN
            ('hipq_timeout', 'hipq_percent', 'hipq_seconds', 'hipq_priority', 'hipq_factor', 'hipq_key', 'hipq_state')
        UNION ALL
        SELECT 3, 'TYPE', typname FROM pg_type
            WHERE typnamespace = home AND typname = 'hipq_row_of_state'
        ORDER BY place
    LOOP
        EXECUTE format('DROP %s %s', leftover.kind, leftover.name);
    END LOOP;
END $$
