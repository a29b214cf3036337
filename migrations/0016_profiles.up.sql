-- Agents as entities.

-- Those of the configuration have an id too, from when they were first recorded: a UUID of version 7.
ALTER TABLE agents ADD COLUMN id TEXT;
UPDATE agents SET id = lower(printf('%08x-%04x-7%s-%s%s-%s',
    created_at >> 16, created_at & 65535, substr(hex(randomblob(2)), 2), substr('89ab', 1 + (random() & 3), 1),
    substr(hex(randomblob(2)), 2), hex(randomblob(6))));
CREATE UNIQUE INDEX agents_by_id ON agents (id);

-- Those that were made over the API. Every slug here is in `agents` as well, which sessions refer to. When the configuration
-- takes a slug, that row becomes the configuration's, and the one here stays as it is.
CREATE TABLE profiles (
    id           TEXT    NOT NULL PRIMARY KEY,
    slug         TEXT    NOT NULL UNIQUE REFERENCES agents (slug),
    owner_uid    INTEGER,
    definition   TEXT    NOT NULL CHECK (json_valid(definition)),
    status       TEXT    NOT NULL CHECK (status IN ('active', 'archived')),
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    archived_at  INTEGER
) STRICT;

CREATE INDEX profiles_by_owner ON profiles (owner_uid, slug);

-- Whether the agent has yet to be given its profile's system prompt.
ALTER TABLE sessions ADD COLUMN instructions_owed INTEGER NOT NULL DEFAULT 0 CHECK (instructions_owed IN (0, 1));
