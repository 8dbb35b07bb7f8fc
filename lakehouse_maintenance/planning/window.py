"""Maintenance windows (DG-06). Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse_maintenance.config.policies import Window


def is_open(window: Window | None, now: datetime) -> bool:
    """Whether `now` (aware) lies in a window: from its start, in its own time zone, for its duration; None: always.

    The start is a time of day on the clocks of that zone, the duration is time that passes: a window of 5 hours lasts
    5 hours also in the night in which clocks change. It may cross midnight. Its end is not part of it.
    """
    if window is None or window.duration >= timedelta(hours=24):
        return True
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(window.timezone)
    moment = now.astimezone(UTC)
    today = now.astimezone(zone).date()
    for day in (today, today - timedelta(days=1)):
        # Between instants in UTC: arithmetic within one zone would be on the clock's face.
        opens = datetime.combine(day, window.start, zone).astimezone(UTC)
        if opens <= moment < opens + window.duration:
            return True
    return False
