"""A server that answers each connection after 20 ms: `python -m benchmarks.measuring.slow_server`.

It chooses a port and writes it into the run's folder.
"""

import asyncio

from benchmarks.measuring.handlers import folder

SECONDS = 0.02


async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer once and close."""
    await asyncio.sleep(SECONDS)
    writer.write(b"done")
    writer.close()


async def serve() -> None:
    """Serve until killed."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1_024)
    port = server.sockets[0].getsockname()[1]
    part = folder() / "port.part"
    part.write_text(str(port))
    part.rename(folder() / "port")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
