"""Work that is given up when it takes too long, or when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

from facerts.serve.refusal import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

Result = TypeVar("Result")


async def while_wanted(request: Request, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """The work's result.

    Args:
        request: that it is for; its body must have been read.
        work: is cancelled when it is given up.
        seconds: that it may take.

    Raises:
        RefusedError: it took longer.
        ClientDisconnect: the client went away.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ClientDisconnect
        raise RefusedError(
            "timeout", f"no answer was found within {seconds:g} seconds; send less, or ask again later"
        )
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
