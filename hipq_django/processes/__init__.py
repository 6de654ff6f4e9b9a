"""The worker process: its loop, threads, heartbeat and signals."""
