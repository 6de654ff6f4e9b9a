"""The runner of hipq_django: `python -m benchmarks.hipq drain '{"jobs": 2000, "workers": 1}'`.

Only the measurements of flows have the app of flows installed, and their workers; only that of
shards has more than one database.
"""

import os
import sys

import django


def run() -> None:
    """Set Django up, then measure."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.hipq.settings"
    is_of_flows = sys.argv[1].startswith("flow_")
    if is_of_flows:
        os.environ["BENCH_FLOWS"] = "yes"
    if sys.argv[1] == "shards":
        os.environ["BENCH_SHARDS"] = "yes"
    django.setup()
    (_run_flows if is_of_flows else _run_jobs)()


def _run_jobs() -> None:
    from benchmarks.hipq import (
        answers,
        beside_flows,
        chains,
        clients,
        django_tasks,
        enqueuing,
        far,
        growing,
        kit,
        large_table,
        limits_at_work,
        many,
        pruning,
        schedules,
        shards,
        soak,
        storms,
        tasks,
        wake_ups,
    )
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import main

    own = {
        "answers": answers.measure,
        "beside_flows": beside_flows.measure,
        "chains": chains.measure,
        "clients": clients.measure,
        "django_tasks": django_tasks.measure,
        "enqueue": enqueuing.measure,
        "far": far.measure,
        "growing": growing.measure,
        "kit": kit.measure,
        "large_table": large_table.measure,
        "many": many.measure,
        "polling": wake_ups.measure_polling,
        "prune": pruning.measure,
        "schedules": schedules.measure,
        "soak": soak.measure,
        "shards": shards.measure,
        "share": limits_at_work.measure_share,
        "storm_beside": storms.measure,
        "tasks": tasks.measure,
        "throttled": limits_at_work.measure_drain,
    }
    main(HipqRunner(), own)


def _run_flows() -> None:
    from benchmarks.hipq import flow_writers, flows
    from benchmarks.measuring.runner import main

    own = {
        "flow_latency": flows.measure_latency,
        "flow_messages": flows.measure_messages,
        "flow_pipelines": flows.measure_pipelines,
        "flow_stage": flows.measure_stage,
        "flow_writers": flow_writers.measure,
    }
    main(flows.FlowRunner(), own)


if __name__ == "__main__":
    run()
