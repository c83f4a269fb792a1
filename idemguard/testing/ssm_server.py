"""A StrictSSM behind HTTP on this machine, for real boto3 clients in any number of processes.

Run it by itself with ``python -m idemguard.testing.ssm_server --port 5104``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from .ssm_account import OPERATIONS
from .strict_ssm import StrictSSM

_TARGET = "AmazonSSM."


class StrictSSMServer:
    """Serves a StrictSSM on 127.0.0.1 while its ``with`` block runs.

    A call whose fault ends it without an answer closes the connection, and so does whatever
    `before_call` raises.

    Args:
        ssm: the fake to serve; a new one by default.
        port: 0 for a free one.

    Attributes:
        ssm: the fake that is served.
        url: for `endpoint_url`, or AWS_ENDPOINT_URL_SSM.
    """

    def __init__(self, ssm: StrictSSM | None = None, *, port: int = 0) -> None:
        self.ssm = StrictSSM() if ssm is None else ssm
        self._http = _Server(self.ssm, port)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> StrictSSMServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The default of 5 makes racing clients wait for the kernel's repeats.
    request_queue_size = 256

    def __init__(self, ssm: StrictSSM, port: int) -> None:
        self.ssm = ssm
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        # Clients keep connections alive, and their threads would go on answering.
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that went away, which slow faults are for, is no error of this server.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One packet for head and body, sent at once.
    wbufsize = -1
    disable_nagle_algorithm = True

    @property
    def _ssm(self) -> StrictSSM:
        return cast(_Server, self.server).ssm

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "").removeprefix(_TARGET)
        if operation not in OPERATIONS:
            return self._refuse("UnknownOperationException", "not an operation of this fake")
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            return self._refuse("SerializationException", "the body is not JSON")
        try:
            answer = self._ssm.call(operation, request)
        except ClientError as error:
            metadata: dict[str, Any] = error.response["ResponseMetadata"]
            told = error.response["Error"]
            self._send({"__type": told["Code"], "message": told["Message"]}, metadata)
        except ParamValidationError as error:
            self._refuse("ValidationException", str(error))
        except BotoCoreError:
            # The fault ended the call without an answer.
            self.close_connection = True
        else:
            self._send(answer, answer.pop("ResponseMetadata"))

    def _refuse(self, code: str, message: str) -> None:
        headers = {"date": self.date_time_string(self._ssm.clock.wall())}
        metadata = {"HTTPStatusCode": 400, "HTTPHeaders": headers}
        self._send({"__type": code, "message": message}, metadata)

    def _send(self, answer: dict[str, Any], metadata: dict[str, Any]) -> None:
        body = json.dumps(answer, default=_timestamp).encode()
        self.send_response_only(metadata["HTTPStatusCode"])
        for name, value in metadata["HTTPHeaders"].items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the calls are in `StrictSSM.calls`."""


def _timestamp(value: object) -> float:
    if isinstance(value, datetime):
        return round(value.timestamp(), 3)
    raise TypeError(f"{type(value).__name__} has no place in an answer")


def main() -> None:
    """Serve a new StrictSSM until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m idemguard.testing.ssm_server")
    parser.add_argument("--port", type=int, default=0, help="0, the default, for a free one")
    with StrictSSMServer(port=parser.parse_args().port) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
