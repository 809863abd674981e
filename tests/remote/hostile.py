"""An HTTP server on loopback that sends whatever bytes a test wants, as long as the client reads them."""

import contextlib
import http.server
import json
import threading


def completion(text="ok", **changes):
    """The JSON body of a chat completion."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    return json.dumps({"model": "m", "choices": [choice], "usage": usage} | changes).encode()


def response(content=b"", status="200 OK", **headers):
    """The bytes of a response; `content_length=None` leaves that header out."""
    named = {"Content-Type": "application/json", "Content-Length": len(content), "Connection": "close"}
    named |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in named.items() if value is not None]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + content


class Hostile:
    """Serves while the block runs.

    Args:
      respond: Gets the last message of a request, and returns the bytes of the response or an iterable of them.

    Attributes:
      received: The last message of each request, in the order of arrival.
      sent: Bytes that were given to the network.
    """

    def __init__(self, respond):
        self.received, self.sent = [], 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = body["messages"][-1]["content"]
                outer.received.append(text)
                self.close_connection = True
                parts = respond(text)
                with contextlib.suppress(OSError):
                    for part in [parts] if isinstance(parts, bytes) else parts:
                        self.wfile.write(part)
                        outer.sent += len(part)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
