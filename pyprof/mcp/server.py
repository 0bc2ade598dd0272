"""The tools -> a server of the Model Context Protocol, made with its official SDK, which alone is known here.

A capture is read in a thread, one at a time, while the server goes on answering. A call that is cancelled is given up: its
thread ends when the capture is read, and one that still waits for its turn is not begun. The process waits for no thread.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ToolType

from pyprof import __version__
from pyprof.mcp.folders import Folders
from pyprof.mcp.results import text_of
from pyprof.mcp.tools import DATA, TOOLS, Session, answer, described

_INSTRUCTIONS = (
    "Reads profiles of PyTorch programs (captures of nsys, nvprof and torch.profiler). Begin with `captures`, then `summary` "
    f"of one. Everything is read-only. {DATA}"
)


class Worker:
    """Answers in threads, one at a time."""

    def __init__(self, session: Session) -> None:
        self._session, self._turn = session, threading.Lock()

    async def answer(self, name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """As `tools.answer`, without blocking the loop; a cancelled call is not waited for."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[dict[str, Any], bool]] = loop.create_future()

        def deliver(result: tuple[dict[str, Any], bool]) -> None:
            if not found.done():
                found.set_result(result)

        def work() -> None:
            with self._turn:
                if not found.cancelled():
                    result = answer(self._session, name, arguments)
                    if not loop.is_closed():
                        loop.call_soon_threadsafe(deliver, result)

        threading.Thread(target=work, daemon=True).start()  # the end of the process does not wait for it
        return await found


def server_of(folders: Folders) -> Server[Any]:
    """A server that answers about the captures in these folders."""
    worker = Worker(Session(folders))

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
        return ListToolsResult(
            tools=[
                ToolType(name=name, description=described(tool), input_schema=tool.schema, annotations=hints)
                for name, tool in TOOLS.items()
            ]
        )

    async def call_tool(_: ServerRequestContext[Any], asked: CallToolRequestParams) -> CallToolResult:
        found, failed = await worker.answer(asked.name, asked.arguments or {})
        return CallToolResult(content=[TextContent(text=text_of(found))], structured_content=found, is_error=failed)

    return Server("pyprof", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def serve(folders: Folders) -> None:
    """Serve over standard input and output until the input ends; whatever else is printed goes to standard error."""

    async def session() -> None:
        server = server_of(folders)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(session)
