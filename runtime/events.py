"""Events for whoever runs the machine: counts, durations, keyed hashes, never words or ids.

They are structlog events on the standard logger ``interturn``, with their fields
as ``extra``. Silent until the application configures logging; a formatter such
as `structlog.stdlib.ProcessorFormatter` with `structlog.stdlib.ExtraAdder`, or
any JSON formatter, shows the fields.
"""

from __future__ import annotations

import logging
from typing import Final, cast

import structlog

_standard = logging.getLogger("interturn")
_standard.addHandler(logging.NullHandler())

log: Final = cast(
    "structlog.stdlib.BoundLogger",
    structlog.wrap_logger(
        _standard,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    ),
)
