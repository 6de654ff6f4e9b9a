"""`python -m example_project.supplier --kafka 127.0.0.1:9092`: runs the supplier until Ctrl-C."""

import logging
from argparse import ArgumentParser
from contextlib import suppress

import confluent_kafka

from example_project.supplier.server import Supplier


def main() -> None:
    """Read the options and serve."""
    parser = ArgumentParser(prog="supplier", description="Takes orders, answers through Kafka.")
    parser.add_argument(
        "--port", type=int, default=8002, help="The port, 0 for a free one; default: %(default)s."
    )
    parser.add_argument(
        "--kafka", default="127.0.0.1:9092", help="The brokers; default: %(default)s."
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    producer = confluent_kafka.Producer({"bootstrap.servers": options.kafka})
    supplier = Supplier(producer, options.port)
    logging.getLogger("supplier").info("The supplier is open at %s", supplier.address)
    with suppress(KeyboardInterrupt):
        supplier.serve_forever()


if __name__ == "__main__":
    main()
