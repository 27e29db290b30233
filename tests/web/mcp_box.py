"""An MCP server of the official SDK, as a process: ``python -m tests.web.mcp_box PORT``.

After SIGUSR1 it has a new tool, lacks one, and describes one differently.
"""

import signal
import sys

from mcp.server.mcpserver import MCPServer


def look(at: str) -> str:
    """Looks at something."""
    return f"{at} is blue"


def look_closely(at: str, times: int = 1) -> str:
    """Looks at something, as often as you like."""
    return f"{at} is blue " * times


def wipe() -> str:
    """Wipes the board."""
    return "wiped"


def count() -> int:
    """Counts what is on the board."""
    return 3


def change(server: MCPServer) -> None:
    """Become another edition."""
    for name in ("look", "wipe"):
        server.remove_tool(name)
    server.add_tool(look_closely, "look")
    server.add_tool(count, "count")


def box() -> MCPServer:
    """The server with its first tools."""
    server = MCPServer("box", log_level="CRITICAL")
    server.add_tool(look, "look")
    server.add_tool(wipe, "wipe")
    signal.signal(signal.SIGUSR1, lambda _signal, _frame: change(server))
    return server


if __name__ == "__main__":
    box().run("streamable-http", port=int(sys.argv[1]), stateless_http=True, json_response=True)
