-- The record: workspaces, agents, sessions, turns, messages, events.
-- Ids are UUID v7 as text, times are milliseconds since the epoch, structured values are JSON text.

CREATE TABLE workspaces (
    id          TEXT    NOT NULL PRIMARY KEY,
    path        TEXT    NOT NULL UNIQUE,
    created_at  INTEGER NOT NULL
) STRICT;

-- The profiles that sessions were made with. Names of the environment only, never values.
CREATE TABLE agents (
    slug         TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    description  TEXT    NOT NULL,
    status       TEXT    NOT NULL CHECK (status IN ('active', 'archived')),
    profile      TEXT    NOT NULL CHECK (json_valid(profile)),
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    id                 TEXT    NOT NULL PRIMARY KEY,
    workspace_id       TEXT    NOT NULL REFERENCES workspaces (id),
    agent              TEXT    NOT NULL REFERENCES agents (slug),
    profile            TEXT    NOT NULL CHECK (json_valid(profile)),
    permissions        TEXT    NOT NULL,
    title              TEXT    NOT NULL,
    tags               TEXT    NOT NULL CHECK (json_valid(tags)),
    status             TEXT    NOT NULL CHECK (status IN ('active', 'suspended', 'archived', 'error')),
    agent_session_id   TEXT,
    context_restored   TEXT,
    last_error         TEXT    CHECK (last_error IS NULL OR json_valid(last_error)),
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    last_active_at     INTEGER NOT NULL,
    status_changed_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_workspace ON sessions (workspace_id, created_at);
CREATE INDEX sessions_by_status ON sessions (status, created_at);
CREATE INDEX sessions_by_time ON sessions (created_at);

CREATE TABLE turns (
    id                   TEXT    NOT NULL PRIMARY KEY,
    session_id           TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    status               TEXT    NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled', 'interrupted')),
    stop_reason          TEXT,
    error_code           TEXT,
    error_message        TEXT,
    queued_at            INTEGER NOT NULL,
    started_at           INTEGER,
    cancel_requested_at  INTEGER,
    finished_at          INTEGER
) STRICT;

CREATE INDEX turns_by_session ON turns (session_id, id);
CREATE INDEX turns_open ON turns (status) WHERE status IN ('queued', 'running');

CREATE TABLE messages (
    id            TEXT    NOT NULL PRIMARY KEY,
    session_id    TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    turn_id       TEXT    REFERENCES turns (id) ON DELETE CASCADE,
    role          TEXT    NOT NULL CHECK (role IN ('user', 'agent', 'tool_call', 'tool_result', 'system')),
    content       TEXT    NOT NULL CHECK (json_valid(content)),
    tool_call_id  TEXT,
    created_at    INTEGER NOT NULL,
    UNIQUE (session_id, sequence)
) STRICT;

CREATE INDEX messages_by_time ON messages (session_id, created_at);
CREATE INDEX messages_by_turn ON messages (turn_id);

-- One row that is written to see whether the database can be.
CREATE TABLE heartbeat (
    id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    at  INTEGER NOT NULL
) STRICT;

-- AUTOINCREMENT: the id is the cursor over all sessions and must never be given twice, not even after a purge.
CREATE TABLE events (
    id          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence    INTEGER NOT NULL,
    turn_id     TEXT,
    type        TEXT    NOT NULL,
    data        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (session_id, sequence)
) STRICT;
