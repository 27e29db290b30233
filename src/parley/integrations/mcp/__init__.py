"""Talking to MCP servers: where they are, what they offer, one call at a time."""

from parley.integrations.mcp.client import Discovery, McpFailed, call_tool, discover
from parley.integrations.mcp.places import (
    HttpPlace,
    Place,
    StdioPlace,
    StdioServers,
    UnfitPlace,
    check_headers,
    check_url,
    read_servers,
    shown_url,
    url_secrets,
)

__all__ = [
    "Discovery",
    "HttpPlace",
    "McpFailed",
    "Place",
    "StdioPlace",
    "StdioServers",
    "UnfitPlace",
    "call_tool",
    "check_headers",
    "check_url",
    "discover",
    "read_servers",
    "shown_url",
    "url_secrets",
]
