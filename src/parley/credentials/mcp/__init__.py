"""MCP servers as an organization's credentials: connecting, looking again, reviewing, signing in."""

from parley.credentials.mcp.servers import DISCOVERY_SECONDS, McpServers, NewServer, Refreshed, ServerAndTools
from parley.credentials.mcp.sign_in import ServerSignIn

__all__ = ["DISCOVERY_SECONDS", "McpServers", "NewServer", "Refreshed", "ServerAndTools", "ServerSignIn"]
