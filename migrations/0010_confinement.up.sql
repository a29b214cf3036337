-- What holds the session's process, or held its last one. The scope that was asked for is in the context.
ALTER TABLE sessions ADD COLUMN sandbox TEXT CHECK (sandbox IS NULL OR json_valid(sandbox));
