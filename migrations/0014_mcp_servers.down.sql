ALTER TABLE sessions DROP COLUMN mcp_servers;
