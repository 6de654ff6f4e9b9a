"""When the night is: reports are made from 00:01 to 08:00 on the accounts' clock."""

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

ZONE_NAME = "Europe/Paris"
ZONE = ZoneInfo(ZONE_NAME)
START, END = time(0, 1), time(8, 0)


def night_of(moment: datetime) -> date:
    """Return the date of the night that is going on at `moment`, else of the next one."""
    local = moment.astimezone(ZONE)
    return local.date() if local.time() < END else local.date() + timedelta(days=1)


def start_of(night: date) -> datetime:
    """Return when the reports of a night may start."""
    return datetime.combine(night, START, ZONE)


def day_before(night: date) -> tuple[datetime, datetime]:
    """Return when the day that a night reports on begins and ends; it may have 23 or 25 hours."""
    first = datetime.combine(night - timedelta(days=1), time(), ZONE)
    return first, datetime.combine(night, time(), ZONE)
