"""The runner of hipq_django: `python -m benchmarks.hipq drain '{"jobs": 2000, "workers": 1}'`."""

import os

import django


def run() -> None:
    """Set Django up, then measure."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.hipq.settings"
    django.setup()
    from benchmarks.hipq import (
        answers,
        clients,
        enqueuing,
        far,
        large_table,
        limits_at_work,
        many,
        soak,
        storms,
        wake_ups,
    )
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import main

    own = {
        "answers": answers.measure,
        "clients": clients.measure,
        "enqueue": enqueuing.measure,
        "far": far.measure,
        "large_table": large_table.measure,
        "many": many.measure,
        "polling": wake_ups.measure_polling,
        "soak": soak.measure,
        "share": limits_at_work.measure_share,
        "storm_beside": storms.measure,
        "throttled": limits_at_work.measure_drain,
    }
    main(HipqRunner(), own)


if __name__ == "__main__":
    run()
