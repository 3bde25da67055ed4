"""Reading ahead: what the next question would have to say of files is said and read while nobody waits.

When the user saves or pauses, what has changed is appended to the conversation, and the model reads it in the
background, so that of a question only the question is left.

Invariant: nothing is said here that a question would not have said at this moment.
Invariant: whatever the user does stops it within one pass of the model; what was read by then is kept.
Invariant: on battery below ``ahead.battery_percent`` nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import psutil

from qmlx_lsp.engine.worker import EngineBusy, EngineClosed
from qmlx_lsp.errors import QmlxError
from qmlx_lsp.session.background import read
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.session import Session
from qmlx_lsp.session.telling import say_ahead

logger = logging.getLogger(__name__)


async def read_ahead(
    session: Session, job: Job, wanted: Callable[[], bool], bound: Callable[[Session], None]
) -> None:
    """Say and read what is new for ``session`` as far as ``job`` lets. Never raises.

    ``wanted`` says whether the session is still the one of its conversation; ``bound`` is called when the memory of
    its state has grown.
    """
    try:
        async with session.lock:
            if job.cancelled or not wanted():
                return
            await say_ahead(session, lambda: job.cancelled)
        if session.live is None or session.live_position < len(session.transcript.log):
            await read(session, job, copy_end=False)
            bound(session)
    except (EngineBusy, EngineClosed):
        return
    except QmlxError as error:
        logger.warning("nothing was read ahead for %s: %s", session.root, error)
    except Exception as error:  # noqa: BLE001 - nobody asked for this; the next question does the work itself
        # What an unforeseen error says may be what was to be told.
        logger.warning("nothing was read ahead for %s: %s", session.root, type(error).__name__)


async def enough_power(threshold_percent: float) -> bool:
    """Whether the machine is on mains, or has more than ``threshold_percent`` left."""
    battery = await asyncio.to_thread(psutil.sensors_battery)
    return battery is None or battery.power_plugged is not False or battery.percent >= threshold_percent
