"""Lines of the log, as both processes write them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

FORMATS = ("json", "text")


class JsonLines(logging.Formatter):
    """One JSON object a line. What people send and models say is never in it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{key}={value}" for key, value in getattr(record, "fields", {}).items() if value is not None]
        return " ".join([super().format(record), *fields])


def write_logs(how: str, level: int, **fields: str) -> None:
    """Have this process write its log to stderr, each line with these fields."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if how == "json" else TextLines("%(asctime)s %(levelname)s %(message)s"))

    def add(record: logging.LogRecord) -> bool:
        record.fields = {**fields, **getattr(record, "fields", {})}
        return True

    handler.addFilter(add)
    logging.basicConfig(level=level, handlers=[handler], force=True)
