DROP TABLE idempotency_keys;
ALTER TABLE turns DROP COLUMN context;
ALTER TABLE sessions DROP COLUMN links_owed;
ALTER TABLE sessions DROP COLUMN context;
