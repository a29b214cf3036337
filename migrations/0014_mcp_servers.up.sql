-- The MCP servers that a session chose: names of its profile's, and definitions of its own. Nothing: all of its profile's,
-- which the profile beside it has.
ALTER TABLE sessions ADD COLUMN mcp_servers TEXT CHECK (mcp_servers IS NULL OR json_valid(mcp_servers));
