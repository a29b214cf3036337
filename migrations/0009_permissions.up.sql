-- Questions of agents and their answers, what persons have answered for good, and policies with rules.

-- The session's own policy. The column `permissions` goes on to have its mode.
ALTER TABLE sessions ADD COLUMN policy TEXT CHECK (policy IS NULL OR json_valid(policy));

CREATE TABLE permissions (
    id            TEXT    NOT NULL PRIMARY KEY,
    session_id    TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id       TEXT,
    kind          TEXT    NOT NULL CHECK (kind IN ('tool', 'file', 'terminal', 'elicitation')),
    tool_call_id  TEXT,
    title         TEXT    NOT NULL,
    action        TEXT    NOT NULL CHECK (json_valid(action)),
    options       TEXT    NOT NULL CHECK (json_valid(options)),
    request       TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('open', 'answered', 'cancelled', 'expired')),
    resolution    TEXT    CHECK (resolution IS NULL OR json_valid(resolution)),
    asked_at      INTEGER NOT NULL,
    expires_at    INTEGER,
    CHECK ((status = 'open') = (resolution IS NULL))
) STRICT;

CREATE INDEX permissions_by_session ON permissions (session_id, id);
CREATE INDEX permissions_open ON permissions (session_id, id) WHERE status = 'open';

CREATE TABLE permission_rules (
    id          TEXT    NOT NULL PRIMARY KEY,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    allows      INTEGER NOT NULL,
    subject     TEXT    NOT NULL CHECK (json_valid(subject)),
    made_by     TEXT    NOT NULL CHECK (json_valid(made_by)),
    made_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX permission_rules_by_session ON permission_rules (session_id, id);
