"""Posts bodies with and without a length with requests, which keeps its connections in urllib3's pool."""

import concurrent.futures
import sys

import requests

session = requests.Session()
session.trust_env = False
url = f"http://{sys.argv[1]}"


def one(size):
    body = b"x" * size
    response = session.post(url + "/echo", data=body, headers={"X-Field": "of requests"}, timeout=60)
    assert (response.status_code, response.content, response.headers["X-Field"]) == (200, body, "of requests"), size
    response = session.post(url + "/echo", data=iter([body[:10], body[10:]]) if size else body, timeout=60)
    assert (response.status_code, response.content) == (200, body), size
    response = session.head(url + "/echo", timeout=60)
    assert (response.status_code, response.content) == (200, b""), size
    with session.get(url + f"/bytes?n={size}", stream=True, timeout=60) as response:
        assert response.status_code == 200 and sum(len(part) for part in response.iter_content(1000)) == size, size


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(one, [n * n * 300 for n in range(100)]))
