DROP TABLE sweeps;
DROP TABLE processes;
ALTER TABLE sessions DROP COLUMN owner_uid;
ALTER TABLE sessions DROP COLUMN expired_seen_at;
ALTER TABLE sessions DROP COLUMN limits;
ALTER TABLE sessions DROP COLUMN supports_resume;
