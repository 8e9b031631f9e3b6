"""A server that is a replica: it answers who it is, which version, and what was asked.

python echo.py PORT VERSION [bad]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys


async def main(port: int, version: str, bad: bool) -> None:
    """Until SIGTERM; then what is under way is answered first."""
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    open_ = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_
        while head := await reader.readuntil(b"\r\n\r\n"):
            open_ += 1
            length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            size = int(length[0].split(b":")[1]) if length else 0
            asked = (await reader.readexactly(size)).decode()
            health = head.startswith(b"GET /v2/health/ready")
            if not health:
                await asyncio.sleep(0.005)
            body = json.dumps({"pid": os.getpid(), "version": version, "asked": asked}).encode()
            status = b"500 No" if bad and not health else b"200 OK"
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
            await writer.drain()
            open_ -= 1

    async def until_gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(until_gone, "127.0.0.1", port)
    await ends.wait()
    server.close()
    while open_:
        await asyncio.sleep(0.005)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["bad"]))
