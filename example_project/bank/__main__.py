"""`python -m example_project.bank --port 8001`: runs the bank until Ctrl-C."""

import logging
from argparse import ArgumentParser
from contextlib import suppress

from example_project.bank.server import Bank


def main() -> None:
    """Read the options and serve."""
    parser = ArgumentParser(prog="bank", description="A bank that answers later, by callback.")
    parser.add_argument(
        "--port", type=int, default=8001, help="The port, 0 for a free one; default: %(default)s."
    )
    parser.add_argument("--seed", type=int, default=0, help="The seed of what becomes of an order.")
    parser.add_argument(
        "--slowest-seconds", type=float, default=0.8, help="The longest time for a payment."
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    bank = Bank(options.port, seed=options.seed, slowest_seconds=options.slowest_seconds)
    logging.getLogger("bank").info("The bank is open at %s", bank.address)
    with suppress(KeyboardInterrupt):
        bank.serve_forever()


if __name__ == "__main__":
    main()
