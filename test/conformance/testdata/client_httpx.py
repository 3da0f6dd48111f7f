"""Posts bodies of many sizes at once with httpx, whose HTTP/2 is Python's h2."""

import asyncio
import sys

import httpx

address, version = sys.argv[1:]


async def pieces(body):
    yield body[:100]
    yield body[100:]


async def post(client, size):
    body = b"x" * size
    content = pieces(body) if size % 2 else body
    response = await client.post(f"http://{address}/echo", content=content, headers={"x-field": "of httpx"})
    got = (response.http_version, response.status_code, response.headers["x-field"])
    assert got == (version, 200, "of httpx"), got
    assert response.content == body, (size, len(response.content))


async def main():
    http2 = version == "HTTP/2"
    async with httpx.AsyncClient(http1=not http2, http2=http2, trust_env=False, timeout=60) as client:
        await asyncio.gather(*(post(client, i * 7919) for i in range(30)))


asyncio.run(main())
