"""pygls's protocol, bent where it does not keep what we promise.

What is changed and why (pygls 2.1.1):

* Documents are kept in our own mirror; pygls's workspace splits lines at form feed and U+2028 and is not filled.
* Messages of our own methods keep their parameters as plain dicts; pygls renames keys that are no identifiers, and
  a nested key ``jsonrpc`` loses the message.
* So do those about documents: pygls drops a whole message for one odd value in it, and who never hears of a change
  does not know that their text is wrong.
* A text from outside is text: lone surrogates, which no file, database or prompt can hold, end at this door.
* An answer of the client is for requests of ours only; pygls would give it to a request of the client's own.
* After ``shutdown``, requests are answered with InvalidRequest and responses are still taken; pygls drops both.
* A late answer to a request of ours that was cancelled is dropped; pygls raises in the reader.
* ``workspace/executeCommand`` is one handler of ours, which can be cancelled; pygls's own cannot.
* ``exit`` ends this connection, not the process.
* What is sent is not logged: it holds the user's files. Nor is our stack sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage
from pygls.protocol.language_server import lsp_method

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.lsp.convert import folder_path
from qmlx_lsp.workspace.document import without_lone_surrogates
from qmlx_lsp.workspace.uris import is_path

logger = logging.getLogger(__name__)

HEADER_LINE_BYTES_MAX = 4096
MESSAGE_BYTES_MAX = 256 << 20

AS_THEY_COME = frozenset(
    {
        types.TEXT_DOCUMENT_DID_OPEN,
        types.TEXT_DOCUMENT_DID_CHANGE,
        types.TEXT_DOCUMENT_DID_CLOSE,
        types.TEXT_DOCUMENT_DID_SAVE,
        types.NOTEBOOK_DOCUMENT_DID_OPEN,
        types.NOTEBOOK_DOCUMENT_DID_CHANGE,
        types.NOTEBOOK_DOCUMENT_DID_CLOSE,
        types.NOTEBOOK_DOCUMENT_DID_SAVE,
    }
)
"""Methods of the protocol whose parameters are not made into its types."""

OURS_ALONE = AS_THEY_COME | {
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS,
    types.WORKSPACE_EXECUTE_COMMAND,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL,
}
"""Methods that pygls serves too, and for which our handlers stand alone."""

for _name in ("pygls", "pygls.protocol", "pygls.protocol.json_rpc", "pygls.protocol.language_server"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class RequestFailedError(JsonRpcException):
    """A request that cannot be served; the message is the one line the user sees."""

    CODE = int(types.LSPErrorCodes.RequestFailed)

    @classmethod
    def of_error(cls, error: QmlxError) -> RequestFailedError:
        return cls(str(error), cls.CODE)


class _BrokenFrame(Exception):
    """Where the next message begins cannot be told any more."""


class Reader(Protocol):
    """What messages are read from: an ``asyncio.StreamReader``, or something like it."""

    def readline(self) -> Awaitable[bytes]: ...

    def readexactly(self, n: int) -> Awaitable[bytes]: ...


class QmlxProtocol(LanguageServerProtocol):
    """See the module's docstring. ``on_exit`` is called for ``exit``, ``complete`` may add to our capabilities.
    ``arriving(method, params)`` sees every request before it is handled, in the context of its handler."""

    on_exit: Callable[[], None] = staticmethod(lambda: None)
    complete: Callable[[types.ServerCapabilities], None] = staticmethod(lambda _capabilities: None)
    arriving: Callable[[str, Any], None] = staticmethod(lambda _method, _params: None)

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        if params.root_uri is not None and folder_path(params.root_uri) is None:
            params.root_uri = None  # pygls takes it apart, and raises where it is no address
        result = yield from super().lsp_initialize(params)
        self.complete(result.capabilities)
        return result

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> Any:
        self.on_exit()

    @property
    def orderly(self) -> bool:
        """Whether ``shutdown`` was asked before the end."""
        return self._shutdown

    def _get_handler(self, feature_name: str) -> Any:
        if feature_name in OURS_ALONE and feature_name in self.fm.features:
            return self.fm.features[feature_name]
        return super()._get_handler(feature_name)

    def structure_message(self, data: dict[str, Any]) -> Any:
        method = data.get("method")
        if isinstance(method, str) and (method in AS_THEY_COME or self.get_message_type(method) is None):
            params = data.get("params") or {}
            if "id" in data:
                return JsonRPCRequestMessage(id=data["id"], jsonrpc="2.0", method=method, params=params)
            return JsonRPCNotification(jsonrpc="2.0", method=method, params=params)
        return super().structure_message(data)

    def handle_message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method == types.INITIALIZE and self._workspace is not None:
            # Columns are counted as the first one said, for as long as the connection lives.
            self._refuse(message, "The server has been initialized already.")
        elif not self._shutdown or method == types.EXIT:
            super().handle_message(message)
        elif hasattr(message, "method"):
            self._refuse(message, "The server is shutting down.")
        else:
            self._handle_response(message.id, getattr(message, "result", None), getattr(message, "error", None))

    def _refuse(self, message: Any, why: str) -> None:
        if getattr(message, "id", None) is not None:
            error = types.ResponseError(code=int(types.ErrorCodes.InvalidRequest), message=why)
            self._send_response(message.id, error=error)

    def _handle_request(self, msg_id: Any, method_name: str, params: Any) -> None:
        self.arriving(method_name, params)
        super()._handle_request(msg_id, method_name, params)

    def _handle_response(self, msg_id: Any, result: Any = None, error: Any = None) -> None:
        future: Any = self._request_futures.get(msg_id)
        if asyncio.isfuture(future):
            return
        if future is not None and (future.cancelled() or future.done()):
            self._request_futures.pop(msg_id, None)
            return
        super()._handle_response(msg_id, result, error)

    def _handle_cancel_notification(self, msg_id: Any) -> None:
        if _is_id(msg_id) and msg_id in self._request_futures:
            super()._handle_cancel_notification(msg_id)

    def _send_response(self, msg_id: Any, result: Any = None, error: Any = None) -> None:
        if error is not None:
            error.data = None  # pygls puts the stack there, with paths of this machine
        super()._send_response(msg_id, result, error)

    def cancel_requests(self) -> list[asyncio.Future[Any]]:
        """Cancel every request that runs; returns what to wait for."""
        held: list[Any] = list(self._request_futures.values())
        running = [future for future in held if asyncio.isfuture(future) and not future.done()]
        for future in running:
            future.cancel()
        return running


async def read_messages(reader: Reader, server: LanguageServer, first_line: bytes = b"") -> bool:
    """Read and dispatch messages until the end of the stream; True if that comes between two messages.
    ``first_line`` is a header line already read.

    Header names in any case, any further headers, bodies in UTF-8. A message that cannot be understood is answered
    with a parse error, and the next one is read; only a broken frame ends the stream.
    """
    protocol = server.protocol
    while True:
        try:
            length = await _content_length(reader, first_line)
            first_line = b""
            if length is None:
                return True
            body = await reader.readexactly(length)
        except (asyncio.IncompleteReadError, _BrokenFrame, ConnectionError):
            return False
        try:
            data = _parsed(body)
        except (ValueError, RecursionError):
            _answer(protocol, None, types.ErrorCodes.ParseError, "The message is not valid JSON.")
            continue
        if not isinstance(data, dict) or data.get("jsonrpc") != "2.0" or not _is_id(data.get("id", 0)):
            _answer(protocol, None, types.ErrorCodes.InvalidRequest, "The message is no JSON-RPC 2.0 message.")
            continue
        if not isinstance(data.get("method", ""), str):
            _answer(protocol, data.get("id"), types.ErrorCodes.InvalidRequest, "The method is no name.")
            continue
        try:
            message = protocol.structure_message(data)
        except JsonRpcException as error:
            if data.get("id") is not None and "method" in data:
                protocol._send_response(data["id"], error=error.to_response_error())
            elif data.get("id") is not None:  # an answer that is none; whoever waits for it need not wait longer
                protocol._handle_response(data["id"], error=error.to_response_error())
            continue
        protocol.handle_message(message)


def _parsed(body: bytes) -> Any:
    """The JSON of a message, in which every text can be encoded. A byte that is no UTF-8 spoils its character, not
    the message: what is lost with a change would be lost unsaid. Raises ValueError or RecursionError."""
    try:
        text = body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = body.decode("utf-8", "replace")
    data = json.loads(text)
    return _encodable(data) if b"\\u" in body or b"\xed" in body else data


def _encodable(value: Any) -> Any:
    """``value`` without lone surrogates. They come as ``\\ud800``, or as bytes that begin like those of Hangul.
    A path may have those that stand for bytes, for it may be no text."""
    if isinstance(value, str):
        return value if value.startswith("/") and is_path(value) else without_lone_surrogates(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


async def _content_length(reader: Reader, line: bytes) -> int | None:
    """Read one header; None at the end of the stream. Raises _BrokenFrame."""
    length: int | None = None
    begun = False
    while True:
        try:
            line = line or await reader.readline()
        except ValueError:  # longer than the reader's limit
            raise _BrokenFrame from None
        if not line and not begun:
            return None
        if not line.endswith(b"\n") or len(line) > HEADER_LINE_BYTES_MAX:
            raise _BrokenFrame
        if not line.strip():
            if length is not None:
                return length
        else:
            begun = True
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                if not value.strip().isdigit() or int(value) > MESSAGE_BYTES_MAX:
                    raise _BrokenFrame
                length = int(value)
        line = b""


def _is_id(value: Any) -> bool:
    """Whether the protocol allows ``value`` as an id (null: nobody's)."""
    return value is None or (isinstance(value, (str, int)) and not isinstance(value, bool))


def _answer(protocol: Any, number: str | int | None, code: types.ErrorCodes, message: str) -> None:
    protocol._send_data({"jsonrpc": "2.0", "id": number, "error": {"code": int(code), "message": message}})
