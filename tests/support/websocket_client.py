"""A WebSocket client: sends messages of several sizes to the URL, and compares the echoes. Prints "ok"."""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect


async def main(url):
    trust = None
    if url.startswith("wss:"):
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    async with connect(url, ssl=trust, max_size=None, compression=None) as connection:
        for size in [0, 1, 125, 65_535, 65_536, 1_000_000]:
            message = bytes(size)
            await connection.send(message)
            assert await connection.recv() == message, size
        await connection.send("text")
        assert await connection.recv() == "text"
        await connection.ping()
    print("ok")


asyncio.run(main(sys.argv[1]))
