"""Parts of a text for `async for`."""

import asyncio
from typing import Any, Optional


def _next(generation: Any) -> Optional[str]:
    return next(generation, None)


async def next_part(generation: Any) -> str:
    """The next part of a Generation; a task that is cancelled ends the text."""
    loop = asyncio.get_running_loop()
    try:
        part = await loop.run_in_executor(None, _next, generation)
    except asyncio.CancelledError:
        generation.cancel()
        raise
    if part is None:
        raise StopAsyncIteration
    return part
