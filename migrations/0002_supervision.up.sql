-- Supervision: who the processes are, what agents can restore, what sessions set for themselves, and retention.

ALTER TABLE sessions ADD COLUMN supports_resume INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN limits TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(limits));
ALTER TABLE sessions ADD COLUMN expired_seen_at INTEGER;
-- The user that the agent runs as, when that is not the daemon's own.
ALTER TABLE sessions ADD COLUMN owner_uid INTEGER;

-- The processes that a daemon has started and has not seen the end of. What a starting daemon finds here, a dead one left.
CREATE TABLE processes (
    session_id     TEXT    NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    boot_id        TEXT    NOT NULL,
    daemon_pid     INTEGER NOT NULL,
    daemon_started INTEGER NOT NULL,
    shim_pid       INTEGER NOT NULL,
    shim_started   INTEGER NOT NULL,
    agent_pid      INTEGER NOT NULL,
    agent_started  INTEGER NOT NULL,
    process_group  INTEGER NOT NULL,
    cgroup         TEXT,
    created_at     INTEGER NOT NULL
) STRICT;

-- When retention was last looked after: one row.
CREATE TABLE sweeps (
    id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    at  INTEGER NOT NULL
) STRICT;
