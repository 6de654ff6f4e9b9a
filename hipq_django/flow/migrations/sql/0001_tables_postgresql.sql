ALTER TABLE hipq_flow_node SET (fillfactor = 70)

-- next statement

ALTER TABLE hipq_flow_message SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
)

-- next statement

ALTER TABLE hipq_flow_alias ADD CONSTRAINT hipq_flow_alias_begins_with_letter
    CHECK (name ~ '^[[:alpha:]]' OR ascii(name) > 127)
