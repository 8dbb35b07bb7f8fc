"""Files of this machine that are symbolic links themselves. Links among the folders above a file are followed by the
forms of its path; one more look for each path would cost too much where nobody has any."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from lakehouse_maintenance.model.errors import InputError
from lakehouse_maintenance.model.locations import Location

_HOST = "file://localhost/"


def led_to(paths: Iterable[str]) -> Iterator[str]:
    """Where those of the paths lead that are links: what a table names is then what is read there."""
    for path in paths:
        if path.startswith(_HOST):
            local = path[len(_HOST) - 1 :]
        elif path.startswith("file:/"):
            local = path[5:]
        elif path.startswith("/"):
            local = path
        else:
            continue
        try:
            if os.path.islink(local):  # noqa: PTH114 - asked for every reference; a Path takes ten times as long
                yield Location.parse(path).resolved.text
        except (InputError, ValueError):
            continue  # no path of this machine
