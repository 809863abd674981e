"""A server with state for the adapters, and what stands where there is none."""

import http.server
import json
import socket
import threading

import pytest

from prism_jax.agent.adapters.client import Client
from prism_jax.agent.settings import AgentSettings, Terms
from prism_jax.decision.operating_point import OperatingPoint


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")
    from served import Stateful

    settings = AgentSettings(Terms(OperatingPoint(c_fa=1.0, c_fn=1.0)))
    with Stateful(tmp_path_factory.mktemp("served") / "state", partitions=2, settings=settings) as running:
        yield running


@pytest.fixture
def client(server):
    return Client(server.url, timeout=20)


@pytest.fixture
def records(server):
    """The records of a stream."""
    return lambda stream: server.ask(f"/v1/records?stream={stream}")[1]["records"]


@pytest.fixture
def nowhere():
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def answering():
    """Starts a server that answers everything with one status and body; returns its address."""
    open_servers = []

    def start(status, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        open_servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in open_servers:
        server.shutdown()
        server.server_close()
