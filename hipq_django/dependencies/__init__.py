"""Jobs that wait for other jobs: what links them, and when they may go on."""
