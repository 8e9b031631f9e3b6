"""Sockets that listen."""

from __future__ import annotations

import errno
import os
import socket

from ganger.core.errors import BadInput


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises BadInput."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as fault:
        mend = "write an address of this machine"
        if fault.errno == errno.EADDRINUSE:
            mend = "use another port, as in --port 8001; 0 takes any that is free"
        why = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror
        raise BadInput(f"{host}:{port}: {why}", where="--port", mend=mend) from None
