-- What turns and sessions have used, and what can be and was chosen of the agent's modes, models and options.

-- The sums as they are shown, and beside them what the next growth is reckoned from.
ALTER TABLE sessions ADD COLUMN usage TEXT CHECK (usage IS NULL OR json_valid(usage));
ALTER TABLE sessions ADD COLUMN usage_basis TEXT CHECK (usage_basis IS NULL OR json_valid(usage_basis));
ALTER TABLE turns ADD COLUMN usage TEXT CHECK (usage IS NULL OR json_valid(usage));
-- Why accepted turns are held back, while they are.
ALTER TABLE sessions ADD COLUMN paused TEXT;

-- The current ones, as far as they are known, and what somebody chose: that is applied again to every new process.
ALTER TABLE sessions ADD COLUMN mode TEXT;
ALTER TABLE sessions ADD COLUMN model TEXT;
ALTER TABLE sessions ADD COLUMN chosen TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(chosen));
ALTER TABLE messages ADD COLUMN model TEXT;

-- What agents announce, in their own JSON. A table of its own, because it is large and lists do not show it.
CREATE TABLE announced (
    session_id      TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    modes           TEXT,
    models          TEXT,
    commands        TEXT,
    config_options  TEXT
) STRICT;
