-- Checkpoints of sessions, and the records of sessions that others have kept.

CREATE TABLE checkpoints (
    row         INTEGER NOT NULL PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session_id  TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    -- The turn that was running.
    turn_id     TEXT,
    -- Of the event that tells of it.
    sequence    INTEGER NOT NULL,
    made_by     TEXT    CHECK (made_by IS NULL OR json_valid(made_by)),
    created_at  INTEGER NOT NULL,
    UNIQUE (session_id, name)
) STRICT;

CREATE INDEX checkpoints_by_time ON checkpoints (created_at, row);
CREATE INDEX checkpoints_by_name ON checkpoints (name, created_at, row);

-- The checkpoint that a session was made from. That one may be gone with its own session.
ALTER TABLE sessions ADD COLUMN restored_from TEXT CHECK (restored_from IS NULL OR json_valid(restored_from));

-- What observations of one session together say. `name` is the session_id that the documents give; where it is that of a
-- session of the owner's own, the entity is that session, and goes with it.
CREATE TABLE record_entities (
    id                 TEXT    NOT NULL PRIMARY KEY,
    owner_uid          INTEGER,
    name               TEXT    NOT NULL,
    session_id         TEXT    UNIQUE REFERENCES sessions (id) ON DELETE CASCADE,
    -- Of each field the latest that was said.
    snapshot           TEXT    NOT NULL,
    -- Out of the snapshot, to find and sort by.
    started_at         INTEGER,
    ended_at           INTEGER,
    duration           REAL,
    observation_count  INTEGER NOT NULL,
    last_observed_at   INTEGER NOT NULL
) STRICT;

-- Nobody is a user like any other here: two NULLs would be two.
CREATE UNIQUE INDEX record_entities_by_name ON record_entities (name, ifnull(owner_uid, -1));
CREATE INDEX record_entities_by_owner ON record_entities (owner_uid, last_observed_at, id);

-- What was said, as it was said. It is never changed.
CREATE TABLE record_observations (
    row           INTEGER NOT NULL PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    entity_id     TEXT    NOT NULL REFERENCES record_entities (id) ON DELETE CASCADE,
    -- The same thing said again is no other observation.
    content_hash  BLOB    NOT NULL,
    content       TEXT    NOT NULL,
    made_by       TEXT    CHECK (made_by IS NULL OR json_valid(made_by)),
    observed_at   INTEGER NOT NULL,
    UNIQUE (entity_id, content_hash)
) STRICT;

-- Checkpoints and outcomes of the snapshots, for timelines. `reference` is what an outcome is about.
CREATE TABLE record_moments (
    entity_id    TEXT    NOT NULL REFERENCES record_entities (id) ON DELETE CASCADE,
    kind         TEXT    NOT NULL CHECK (kind IN ('checkpoint', 'outcome')),
    ordinal      INTEGER NOT NULL,
    reference    TEXT,
    -- Nothing: the time of the session's end, or else of the observation.
    at           INTEGER,
    observed_at  INTEGER NOT NULL,
    data         TEXT    NOT NULL,
    PRIMARY KEY (entity_id, kind, ordinal)
) STRICT, WITHOUT ROWID;

CREATE INDEX record_moments_by_reference ON record_moments (reference) WHERE reference IS NOT NULL;
