-- Whether retention leaves the session alone.
ALTER TABLE sessions ADD COLUMN keep INTEGER NOT NULL DEFAULT 0 CHECK (keep IN (0, 1));
