-- What a session chose is forgotten. Without that it would have all of its profile's when the column is there again, and a
-- session may only have less than its profile grants: so it has none.
UPDATE sessions SET profile = json_remove(profile, '$.mcpServers') WHERE mcp_servers IS NOT NULL;
ALTER TABLE sessions DROP COLUMN mcp_servers;
