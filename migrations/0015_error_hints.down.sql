ALTER TABLE turns DROP COLUMN retry_after_seconds;
ALTER TABLE turns DROP COLUMN error_hint;
