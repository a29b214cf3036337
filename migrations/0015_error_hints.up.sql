-- What to do about it when a turn has failed; and how long to wait, when the service behind the agent has said so.
ALTER TABLE turns ADD COLUMN error_hint TEXT;
ALTER TABLE turns ADD COLUMN retry_after_seconds INTEGER;
