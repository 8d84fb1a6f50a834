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
    """The same for people: of a request what was asked, and its id only where an error of ours has it, too."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in getattr(record, "fields", {}).items() if value is not None}
        words = [] if record.levelno == logging.INFO else [record.levelname.lower()]
        if "route" in fields:
            words.append("{method} {route} {status} in {seconds:.2f} s".format_map(fields))
            left_out = {"method", "route", "status", "seconds", "caller"}
            if fields["status"] != 500:
                left_out.add("id")
            fields = {key: value for key, value in fields.items() if key not in left_out}
        else:
            words.append(super().format(record))
        return " ".join([self.formatTime(record, self.datefmt), *words, *map("{0[0]}={0[1]}".format, fields.items())])


def write_logs(how: str, level: int, **fields: str) -> None:
    """Have this process write its log to stderr, each line with these fields."""
    handler = logging.StreamHandler(sys.stderr)
    clock = "%H:%M:%S" if sys.stderr.isatty() else "%Y-%m-%dT%H:%M:%S%z"
    handler.setFormatter(JsonLines() if how == "json" else TextLines(datefmt=clock))

    def add(record: logging.LogRecord) -> bool:
        record.fields = {**fields, **getattr(record, "fields", {})}
        return True

    handler.addFilter(add)
    logging.basicConfig(level=level, handlers=[handler], force=True)
