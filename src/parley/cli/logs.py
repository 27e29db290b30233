"""The server's log: one record, one line, whatever a message holds (trust T22).

``json`` is for machines: ASCII only, so that neither line ends nor terminal or bidirectional controls
survive. ``text`` is for a person at a terminal: controls are shown as escapes, and the lines of a
traceback are set off so that none can pass for a record.
"""

import json
import logging
import sys
from datetime import UTC, datetime

from parley.base.settings import LogFormat
from parley.storage.acting import acting

CHATTY = ("httpx", "httpcore", "uvicorn.access", "alembic")
SET_OFF = "\n    | "


def write_logs(form: LogFormat) -> None:
    """Send this process's records to standard error in the form; clients that log URLs are silenced."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLine(logging.Formatter):
    """``{"time", "level", "logger", "message"}`` with ``organization``, ``run`` and ``trace`` where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        who = acting()
        fields = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "organization": who.organization_id,
            "run": who.run_id,
            "trace": _trace(self, record),
        }
        return json.dumps({name: value for name, value in fields.items() if value}, ensure_ascii=True)


class TextLine(logging.Formatter):
    """A line to read; a traceback follows it, set off."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, and the lines of its traceback."""
        who = acting()
        about = "".join(f" {name}={id_}" for name, id_ in (("org", who.organization_id), ("run", who.run_id)) if id_)
        line = f"{_time(record)} {record.levelname} {record.name}{about} {record.getMessage()}"
        return SET_OFF.join([printable(line), *map(printable, _trace(self, record).splitlines())])


def printable(text: str) -> str:
    """The text with everything that moves a cursor or turns a line shown as an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
