"""Where a worker's log lines go."""

import logging

logger = logging.getLogger("hipq_django")

LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def set_up_logging(verbosity: int) -> None:
    """Log to stderr, unless the project says itself where our logger goes."""
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS[verbosity])
