"""Whether a worker of this machine lives: exit with 1 if none does. Stands beside manage.py.

It asks about the instance `default`, or about another one: `worker_alive.py --instance bank`.

The name of a worker is that of its machine, a colon and the number of its process; the name of a
container's machine is its own. Where the database cannot be asked, this says so and exits with 0: a
worker waits for the database by itself, and to restart it would only add to the load.
"""

import argparse
import json
import socket
import subprocess
import sys

parser = argparse.ArgumentParser(description="Exit with 1 if no worker of this machine lives.")
parser.add_argument("--instance", default="default", help="The hipq instance of the worker.")
instance = parser.parse_args().instance

command = [sys.executable, "manage.py", "hipq_status", "--json", "--instance", instance]
try:
    status = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
except subprocess.CalledProcessError as error:
    sys.stderr.write(error.stderr)
    sys.exit(0)
except subprocess.TimeoutExpired:
    sys.stderr.write("the database has not answered within 20 s\n")
    sys.exit(0)
told = status.stdout[status.stdout.index("{\n") :]
answer, _ = json.JSONDecoder().raw_decode(told)  # around it may stand what the project prints
machine = socket.gethostname()
here = [w for w in answer["workers"] if w["name"].startswith(f"{machine}:")]
if all(worker["silent"] for worker in here):
    sys.exit(f"no worker on {machine} has sent a heartbeat lately")
