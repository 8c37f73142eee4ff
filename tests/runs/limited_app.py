"""An app for worker processes whose queue has all limits, or none if APP_LIMITS says so."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import holdfast

LIMITS: dict[str, Any] = {"concurrency": 5, "each": 2, "rate": holdfast.Rate("starts", 20, per=1, burst=4)}
QUEUE = holdfast.Queue("limited", fair_by="tenant", **({} if os.environ.get("APP_LIMITS") == "none" else LIMITS))


@holdfast.durable(name="limited", queue=QUEUE)
async def limited(name: str) -> None:
    """Work for a moment."""
    with Path(os.environ["APP_LOG"]).open("a") as log:
        log.write(f"{time.time()} {name}\n")
    await asyncio.sleep(0.15)
