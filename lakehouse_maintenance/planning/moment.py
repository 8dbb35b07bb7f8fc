"""`CURRENT_DATE` and `CURRENT_TIMESTAMP` in the text of a `where`, resolved when the plan is made (INTERFACES). Pure.

The plan then names one moment for good: what is reviewed is what is done, whenever it is applied.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from lakehouse_maintenance.model.errors import InputError

WHERE = "where"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Text in single quotes and names in double quotes come first: what looks like a moment in them is none.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'
      | "(?:\\.|[^"\\])*"
      | (?<![\w.$]) (?P<word>current_date|current_timestamp) (?![\w.$]) (?:\s*\(\s*\))?
        (?P<days>(?:\s*[+-]\s*[0-9]+(?![\w.]))*)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def resolve_moments(text: str, now_ms: int) -> str:
    """The filter with each moment as a quoted literal, in UTC; `now_ms`: milliseconds since 1970.

    `CURRENT_DATE - 7` becomes the date seven days ago, `CURRENT_TIMESTAMP - 1` the moment 24 hours ago. Raises
    InputError of field `where` for a moment outside the years 1 to 9999.
    """

    def resolved(found: re.Match[str]) -> str:
        word = found["word"]
        if word is None:
            return found[0]
        days = sum(int(part) for part in re.findall(r"[+-][0-9]+", re.sub(r"\s", "", found["days"])))
        try:
            moment = _EPOCH + timedelta(milliseconds=now_ms) + timedelta(days=days)
        except OverflowError as error:
            raise InputError(
                f"{found[0]} is no date between the years 1 and 9999", field=WHERE, hint="days are added or subtracted"
            ) from error
        if word.lower() == "current_date":
            return f"'{moment.date().isoformat()}'"
        return f"'{moment.isoformat(timespec='milliseconds')}'"

    return _TOKEN.sub(resolved, text)
