"""Models served from a Python program, and asked: three lines.

    with ganger.serve("models.toml") as server:
        print(server.infer("small", {"image": np.zeros((1, 64), np.float32)}))

`ganger.Endpoint("http://host:8000")` asks any server of the Open Inference Protocol v2.
"""

from __future__ import annotations

import http.client
import json
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ganger.core.errors import BadInput, GangerError
from ganger.serving.datatypes import NUMPY
from ganger.serving.outliving import command_of

START_SECONDS: Final = 300.0
END_SECONDS: Final = 40.0
_NAMES: Final = {dtype: name for name, dtype in NUMPY.items()}
_LINE: Final = re.compile(r"models at http://(\S+?) under ")
_HEAD: Final = "inference-header-content-length"


class NoAnswer(GangerError):  # noqa: N818 - it is what became of a request
    """A server did not answer what was asked: its `status` as of HTTP, its `reason` as a word."""

    def __init__(self, why: str, status: int, reason: str) -> None:
        super().__init__(why)
        self.status, self.reason = status, reason


class Endpoint:
    """A server of the Open Inference Protocol v2 over HTTP: one model server, or a service of
    `ganger service`. `key`: for a server that wants one; `timeout` in seconds. One thread at a
    time may use it."""

    def __init__(self, url: str, *, key: str = "", timeout: float = 60.0) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(
                f"{url!r} is not a valid address", where="url", mend="write http://HOST:PORT"
            )
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike],
        *,
        request_id: str = "",
        seconds: float | None = None,
    ) -> dict[str, NDArray[Any]]:
        """The outputs of a model for these inputs, by name. `seconds`: after so long no answer is
        wanted. A request that is sent again under its `request_id` gets the same answer. Raises
        NoAnswer, BadInput."""
        sent = [_sent(name, np.asarray(value)) for name, value in inputs.items()]
        parameters: dict[str, Any] = {"binary_data_output": True}
        if seconds is not None:
            parameters["timeout"] = int(seconds * 1e6)
        asked: dict[str, Any] = {"inputs": [each for each, _ in sent], "parameters": parameters}
        if request_id:
            asked["id"] = request_id
        head = json.dumps(asked).encode()
        path = f"/v2/models/{quote(model, safe='')}/infer"
        headers, body = self._ask(
            "POST", path, b"".join([head, *(data for _, data in sent)]), {_HEAD: str(len(head))}
        )
        size = int(headers.get(_HEAD, len(body)))
        at, outputs = size, {}
        for output in json.loads(body[:size])["outputs"]:
            length = output.get("parameters", {}).get("binary_data_size")
            held = None if length is None else body[at : at + length]
            at += length or 0
            outputs[output["name"]] = _received(output, held)
        return outputs

    def models(self) -> list[str]:
        """The names of all models. Raises NoAnswer."""
        _, body = self._ask("POST", "/v2/repository/index", b"{}")
        return [model["name"] for model in json.loads(body)]

    def describe(self, model: str) -> dict[str, Any]:
        """The inputs and outputs of a model, as the protocol has them. Raises NoAnswer."""
        described: dict[str, Any] = json.loads(self._ask("GET", f"/v2/models/{quote(model)}")[1])
        return described

    def ready(self) -> bool:
        """Whether it takes requests."""
        try:
            self._ask("GET", "/v2/health/ready")
        except NoAnswer:
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, body: bytes | None = None, more: dict[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        try:
            self._connection.request(method, path, body, {**self._headers, **(more or {})})
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            self._connection.close()
            raise NoAnswer(f"{self.url}: {str(fault) or type(fault).__name__}", 0, "") from None
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if answer.status >= http.client.BAD_REQUEST:
            raise NoAnswer(_why(data), answer.status, headers.get("ganger-reason", ""))
        return headers, data


class Server(Endpoint):
    """`ganger serve` as a child of this program, until it is closed."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        super().__init__(url)
        self._process = process

    def close(self) -> None:
        """Have it answer what is under way, and end."""
        super().close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def serve(
    models: str | Path, recipe: str = "", *, port: int = 0, options: Sequence[str] = ()
) -> Server:
    """Serve the models of a models file, or of a Triton repository, on this machine, in a process
    of its own. `port`: 0 is any that is free; `options`: more words for `ganger serve`, like
    `["--lanes", "2"]`. Raises GangerError, which says what `ganger serve` did."""
    words = ["serve", str(models), "--port", str(port), *options]
    words += ["--recipe", recipe] if recipe else []
    process = subprocess.Popen(
        command_of(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines: queue.Queue[str] = queue.Queue()
    said = list[str]()
    assert process.stdout is not None
    assert process.stderr is not None
    errors = threading.Thread(target=_read, args=(process.stderr, said.append), daemon=True)
    errors.start()
    threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True).start()
    try:
        line = lines.get(timeout=START_SECONDS)
    except queue.Empty:
        line = ""
    place = _LINE.search(line)
    if place is None:
        process.kill()
        process.wait()
        errors.join()
        why = "".join(said).strip().rpartition("\n")[2].removeprefix("ganger: ")
        raise GangerError(why or "it did not start")
    return Server(process, f"http://{place[1]}")


def _read(stream: IO[str], keep: Any) -> None:
    """Hand on line by line, so that the pipe is never full; an empty line at the end."""
    with stream:
        for line in stream:
            keep(line)
    keep("")


def _sent(name: str, array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """An input as the protocol's head, and its bytes. Raises BadInput."""
    head: dict[str, Any] = {"name": name, "shape": list(array.shape)}
    if array.dtype.kind in "OUS":
        head |= {"datatype": "BYTES", "data": [_text(word) for word in array.ravel().tolist()]}
        return head, b""
    datatype = _NAMES.get(array.dtype.newbyteorder("="))
    if datatype is None:
        raise BadInput(f"its type is {array.dtype}", where=f"input {name!r}", mend="convert it")
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return {**head, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}, data


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)


def _received(output: dict[str, Any], data: bytes | None) -> NDArray[Any]:
    """An output, from its bytes or from its JSON."""
    dtype, shape = NUMPY[output["datatype"]], output["shape"]
    if data is None:
        return np.array(output["data"], dtype).reshape(shape)
    if output["datatype"] != "BYTES":
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    words, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        words.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return np.array(words, dtype).reshape(shape)


def _why(data: bytes) -> str:
    """What a server says that is wrong."""
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace") or "it did not answer"
