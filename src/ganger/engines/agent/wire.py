"""Frames over a stream socket that never blocks."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Final

import msgspec

from ganger.engines.agent.protocol import FRAME_BYTES_MAX

_LENGTH = struct.Struct(">I")
_CHUNK: Final = 1 << 18
BACKLOG_BYTES_MAX: Final = 64 << 20
"""A peer that lets so much pile up is gone."""


UNPROVED_BYTES_MAX: Final = 64 << 10
"""The largest frame from a peer that has not proved yet to know the token."""


class GoneError(Exception):
    """The connection ended, or what came through it was not a message."""


class Link:
    """One end of a connection. `send` and `receive` return at once.

    `reads` is the union of messages that may arrive here; anything else ends the connection,
    and so does a frame of more than `frame_bytes_max`.
    """

    def __init__(
        self, sock: socket.socket, reads: Any, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        sock.setblocking(False)
        self.socket = sock
        self._in = bytearray()
        self._out = bytearray()
        self._decode = msgspec.msgpack.Decoder(reads).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def fileno(self) -> int:
        """For selectors."""
        return self.socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits until the socket can be written."""
        return bool(self._out)

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message and write what can be written. Raises GoneError."""
        body = self._encode(message)
        self._out += _LENGTH.pack(len(body)) + body
        self.flush()

    def flush(self) -> None:
        """Write what can be written. Raises GoneError."""
        try:
            while self._out:
                del self._out[: self.socket.send(self._out)]
        except (BlockingIOError, InterruptedError):
            if len(self._out) > BACKLOG_BYTES_MAX:
                raise GoneError("it does not read") from None
        except OSError as error:
            raise GoneError(str(error)) from None

    def receive(self) -> list[Any]:
        """All messages that are there. Raises GoneError, but first returns what came before."""
        gone = ""
        try:
            size = min(_CHUNK, self.frame_bytes_max)
            while chunk := self.socket.recv(size):
                self._in += chunk
                if len(chunk) < size or len(self._in) > self.frame_bytes_max:
                    break  # what is left comes the next time
            else:
                gone = "it closed the connection"
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            gone = str(error)
        messages = self._unpack()
        if gone and not messages:
            raise GoneError(gone)
        return messages

    def _unpack(self) -> list[Any]:
        messages, at = [], 0
        while len(self._in) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._in, at)
            if length > self.frame_bytes_max:
                raise GoneError(f"a frame of {length} bytes")
            end = at + _LENGTH.size + length
            if len(self._in) < end:
                break
            try:
                messages.append(self._decode(self._in[at + _LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                raise GoneError(f"not a message of this protocol: {error}") from None
            at = end
        del self._in[:at]
        return messages

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()
