"""Posts bodies with and without a length on one HTTP/1.1 connection."""

import http.client
import sys

connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
for size in (0, 1, 1000, 100_000, 3_000_000):
    body = b"x" * size
    connection.request("POST", "/echo", body=body, headers={"X-Field": "of python"})
    response = connection.getresponse()
    assert (response.status, response.read(), response.getheader("x-field")) == (200, body, "of python"), size
    connection.request("POST", "/echo", body=iter([body[:10], body[10:]]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, body), size
    connection.request("HEAD", "/echo")
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b""), size
