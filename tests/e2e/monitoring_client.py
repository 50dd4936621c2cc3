"""A client of ps_server's --metrics_port. Standard library only."""
import http.client
import json
import time


def fetch(port, path, method="GET", headers=None):
    """Makes a request. Returns (status, headers, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read().decode()
    finally:
        connection.close()


def status(port):
    """Returns the object of /status.json. Raises ConnectionError while the server has nothing to show."""
    code, _, body = fetch(port, "/status.json")
    if code != 200:
        raise ConnectionError(f"/status.json: {code} {body}")
    return json.loads(body)


def await_status(port, condition, timeout=120):
    """Polls /status.json until the condition holds and returns that object. Raises AssertionError after `timeout`."""
    deadline = time.monotonic() + timeout
    seen = None
    while time.monotonic() < deadline:
        try:
            seen = status(port)
            if condition(seen):
                return seen
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not in {timeout} s; last seen: {json.dumps(seen)[:2000]}")
