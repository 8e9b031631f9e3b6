"""The tasks of `srun` on the nodes of a job: how they start, on this machine and on others.

Of a job that runs its command once (`per` `job`) over several nodes, the first node runs the
command below `lead`, and each other node runs `follow`, which connects to the first node
(MASTER_ADDR and MASTER_PORT), proves that it knows the attempt's secret, and starts what `srun`
asks for. Both prove it by HMAC-SHA256 over both nonces; nothing is encrypted, as between agents.

Standard library only: it runs with whatever Python the machine has, 3.9 or newer.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

LINE_BYTES_MAX = 8 << 20
PROOF_BYTES_MAX = 1 << 10
PROOF_SECONDS = 10.0
JOIN_SECONDS = 60.0
BIND_SECONDS = 10.0
DRAIN_SECONDS = 5.0
"""So long a task's output is waited for after its end: what it left behind may hold the pipe."""
UNPROVED_MAX = 128
"""Connections at once whose other end has not proved that it knows the secret."""
SECRET = "GANGER_STEP_SECRET"
OF_THE_NODE = (
    "GANGER_DIR",
    "GANGER_NODE_RANK",
    "GANGER_WORKERS",
    "GANGER_CHECKPOINT_DIR",
    "CUDA_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
    "SLURM_GPUS_ON_NODE",
)
"""Variables of which each node has its own."""


class Refused(Exception):  # noqa: N818 - reads as a sentence
    """What is asked for cannot be done; the message says why."""


# ---------------------------------------------------------------------- frames


class Line:
    """A connection that carries one JSON value a line; sending is safe from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.most = LINE_BYTES_MAX
        self.until = 0.0
        """When to hang up (monotonic seconds); 0: never."""
        self._lock, self._unread = threading.Lock(), b""

    def send(self, value: dict[str, Any]) -> None:
        """Raises OSError when the other end is gone."""
        with self._lock:
            self.sock.sendall(json.dumps(value).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next value; None when the other end is gone or speaks nonsense."""
        while b"\n" not in self._unread:
            if len(self._unread) > self.most:
                return None
            try:
                if self.until:  # of all that comes: each byte would begin a timeout anew
                    self.sock.settimeout(max(self.until - time.monotonic(), 0.001))
                data = self.sock.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
        return None

    def distrust(self) -> None:
        """Until it is trusted, listen for a short time and to few bytes."""
        self.until, self.most = time.monotonic() + PROOF_SECONDS, PROOF_BYTES_MAX

    def trust(self) -> None:
        """The other end has proved itself."""
        self.until, self.most = 0.0, LINE_BYTES_MAX
        self.sock.settimeout(None)

    def close(self) -> None:
        """Hang up. A thread that waits in `receive` returns."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def proof(secret: str, role: str, *nonces: str) -> str:
    """That its maker knows the secret, for these nonces and nobody else's role."""
    said = "/".join((role, *nonces)).encode(errors="surrogatepass")
    return hmac.new(secret.encode(), said, "sha256").hexdigest()


def proves(said: object, wanted: str) -> bool:
    """Whether the other end's answer, of whatever type, is the proof that is wanted."""
    return hmac.compare_digest(str(said).encode(errors="surrogatepass"), wanted.encode())


def free_port() -> int:
    """A TCP port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
        return port


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; a port that is taken may be free in a moment. Raises Refused."""
    until = time.monotonic() + BIND_SECONDS
    while True:
        try:
            return socket.create_server((host, port), backlog=128)
        except OSError as why:
            if time.monotonic() > until:
                raise Refused(f"port {port} on the job's first node: {why.strerror}") from None
            time.sleep(0.1)


class At:
    """A short path of a socket in a folder, whatever the folder's length."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/steps"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


# ---------------------------------------------------------------------- tasks on this machine


class Local:
    """Tasks that run here. `say(rank, stream, data)` gets their output; without it they write to
    this process's own. `over(rank, code)` is called once for each."""

    def __init__(self, say: Any, over: Any) -> None:
        self._say, self._over = say, over
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, rank: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
        """Start one; a command that cannot be started is over at once, with 127."""
        pipe = subprocess.PIPE if self._say else None
        try:
            with self._lock:
                task = subprocess.Popen(
                    argv,
                    env=env,
                    cwd=cwd or None,
                    stdout=pipe,
                    stderr=pipe,
                    stdin=None if rank == 0 and not self._say else subprocess.DEVNULL,
                )
                self._running[rank] = task
        except OSError as why:
            text = f"srun: {argv[0]}: {why.strerror}\n".encode()
            if self._say:
                self._say(rank, 2, text)
            else:
                os.write(2, text)
            self._over(rank, 127)
            return
        threading.Thread(target=self._see_through, args=(rank, task), daemon=True).start()

    def _see_through(self, rank: int, task: subprocess.Popen[bytes]) -> None:
        pumps = [
            threading.Thread(target=self._pump, args=(rank, number, stream), daemon=True)
            for number, stream in ((1, task.stdout), (2, task.stderr))
            if stream is not None
        ]
        for pump in pumps:
            pump.start()
        code = task.wait()
        for pump in pumps:
            pump.join(DRAIN_SECONDS)  # what it left behind may hold the pipe for ever
        with self._lock:
            self._running.pop(rank, None)
        self._over(rank, code)

    def _pump(self, rank: int, number: int, stream: Any) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            self._say(rank, number, data)

    def signal(self, number: int) -> None:
        """Send it to every task that runs here."""
        with self._lock:
            running = list(self._running.values())
        for task in running:
            task.send_signal(number)


# ---------------------------------------------------------------------- the first node


class Lead:
    """The first node's side: knows the other nodes' connections, and passes on what `srun` asks of
    them and what they answer."""

    def __init__(self, nodes: int, secret: str, address: str, port: int, folder: str) -> None:
        self._nodes, self._secret = nodes, secret
        self._joined: dict[int, Line] = {}
        self._changed = threading.Condition()
        self._steps: dict[int, Line] = {}
        self._next = 0
        self._unproved: dict[Line, str] = {}  # and the address of each, the oldest first
        self._tcp = _listening("127.0.0.1" if address == "127.0.0.1" else "", port)
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with At(folder) as path:
            self._unix.bind(path)
        self._unix.listen()
        for accept, serve in ((self._tcp, self._join), (self._unix, self._serve)):
            threading.Thread(target=self._accept, args=(accept, serve), daemon=True).start()

    def _accept(self, listener: socket.socket, serve: Any) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                time.sleep(0.1)  # no descriptors are left, or this is over
                continue
            line = Line(sock)
            if serve == self._join and not self._let_in(line, address[0]):
                continue
            threading.Thread(target=serve, args=(line,), daemon=True).start()

    def _let_in(self, line: Line, address: str) -> bool:
        """Make room for one that is still to prove itself: any of the address that has most of them
        goes. The oldest would surely be one of ours, where others there are quicker than a proof.
        """
        with self._changed:
            self._unproved[line] = address
            if len(self._unproved) <= UNPROVED_MAX:
                return True
            addresses = list(self._unproved.values())
            crowd = max(addresses, key=addresses.count)
            unlucky = secrets.choice([one for one, its in self._unproved.items() if its == crowd])
            del self._unproved[unlucky]
        unlucky.close()
        return unlucky is not line

    def _join(self, line: Line) -> None:
        """A node connects: it proves itself, then it is listened to."""
        try:
            node = self._proved(line)
        finally:
            with self._changed:
                self._unproved.pop(line, None)
        if node < 0:
            line.close()
            return
        with self._changed:
            self._joined[node] = line
            self._changed.notify_all()
        while (message := line.receive()) is not None:
            with self._changed:
                asker = self._steps.get(message.get("step", -1))
            if asker is not None:
                with contextlib.suppress(OSError):
                    asker.send(message)
        with self._changed:
            self._joined.pop(node, None)
            askers = list(self._steps.values())
        line.close()
        for asker in askers:
            with contextlib.suppress(OSError):
                asker.send({"lost": node})

    def _proved(self, line: Line) -> int:
        line.distrust()
        mine = secrets.token_hex(16)
        try:
            line.send({"nonce": mine})
            hello = line.receive() or {}
            theirs, node = str(hello.get("nonce", "")), hello.get("node", -1)
            wanted = proof(self._secret, f"follow {node}", mine, theirs)
            if not proves(hello.get("proof"), wanted):
                return -1
            line.send({"proof": proof(self._secret, "lead", theirs, mine)})
            line.trust()
        except OSError:  # gone, or hung up on to make room
            return -1
        return node if isinstance(node, int) and 0 < node < self._nodes else -1

    def _node(self, node: int, seconds: float) -> Line | None:
        with self._changed:
            self._changed.wait_for(lambda: node in self._joined, seconds)
            return self._joined.get(node)

    def _serve(self, line: Line) -> None:
        """An `srun` of this node asks."""
        request = line.receive()
        if request is None:
            line.close()
            return
        with self._changed:
            step, self._next = self._next, self._next + 1
            self._steps[step] = line
        reached = []
        for text, parts in request["nodes"].items():
            other = self._node(int(text), JOIN_SECONDS)
            if other is None:
                line.send({"lost": int(text)})
                continue
            reached.append(other)
            with contextlib.suppress(OSError):
                other.send({"step": step, "tasks": parts, **request["common"]})
        while (order := line.receive()) is not None:
            self._pass_on(reached, {"step": step, "signal": order["signal"]})
        self._pass_on(reached, {"step": step, "signal": int(signal.SIGKILL)})
        with self._changed:
            del self._steps[step]
        line.close()

    @staticmethod
    def _pass_on(reached: list[Line], message: dict[str, Any]) -> None:
        for other in reached:
            with contextlib.suppress(OSError):
                other.send(message)

    def end(self) -> None:
        """Let the other nodes go; one that is still to come is waited for."""
        for node in range(1, self._nodes):
            other = self._node(node, JOIN_SECONDS)
            if other is not None:
                with contextlib.suppress(OSError):
                    other.send({"bye": True})


def lead(argv: list[str]) -> int:
    """Run the job's command here, with the other nodes at its `srun`'s service; its exit code."""
    env = dict(os.environ)
    secret, port = env.pop(SECRET), int(env["MASTER_PORT"])
    nodes = len(env["GANGER_TASKS"].split(","))
    here = Lead(nodes, secret, env["MASTER_ADDR"], port, env["GANGER_DIR"])
    env["MASTER_PORT"] = env["GANGER_MASTER_PORT"] = str(free_port())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # it is the command's to answer; we see it through
    try:
        code = subprocess.Popen(argv, env=env).wait()
    except OSError as why:
        sys.stderr.write(f"srun: {argv[0]}: {why.strerror}\n")
        code = 127
    here.end()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
        os.kill(os.getpid(), -code)
    return code


# ---------------------------------------------------------------------- the other nodes


class Follow:
    """Another node's side: starts what it is asked for until the first node lets it go."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._steps: dict[int, Local] = {}

    def run(self) -> int:
        """The exit code: 0 if the first node let us go."""
        try:
            while (message := self._line.receive()) is not None:
                if "bye" in message:
                    return 0
                self._obey(message)
            sys.stderr.write("srun: the job's first node is gone\n")
            return 1
        finally:
            for local in self._steps.values():
                local.signal(signal.SIGKILL)

    def _obey(self, message: dict[str, Any]) -> None:
        step = message["step"]
        if "signal" in message:
            if step in self._steps:
                self._steps[step].signal(message["signal"])
            return

        def say(rank: int, number: int, data: bytes) -> None:
            self._send(
                {
                    "step": step,
                    "rank": rank,
                    "stream": number,
                    "data": base64.b64encode(data).decode(),
                }
            )

        def over(rank: int, code: int) -> None:
            self._send({"step": step, "rank": rank, "code": code})

        local = self._steps[step] = Local(say, over)
        env = {**message["env"], **{k: os.environ[k] for k in OF_THE_NODE if k in os.environ}}
        for name in ("PATH", "PYTHONPATH"):  # what the agent of this machine put there
            known = env.get(name, "").split(":")
            own = os.environ.get(name, "").split(":")
            env[name] = ":".join([*known, *(one for one in own if one not in known)])
        for rank, own_env in message["tasks"]:
            local.start(rank, message["argv"], {**env, **own_env}, message["cwd"])

    def _send(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._line.send(value)


def _joined() -> Line:
    """A connection to the first node, both proved. Raises Refused."""
    env = os.environ
    where, secret = (env["MASTER_ADDR"], int(env["MASTER_PORT"])), env.pop(SECRET)
    until = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < until:
        try:
            line = Line(socket.create_connection(where, PROOF_SECONDS))
        except OSError:
            time.sleep(0.05)
            continue
        line.distrust()
        theirs, mine = str((line.receive() or {}).get("nonce", "")), secrets.token_hex(16)
        node = int(env["GANGER_NODE_RANK"])
        with contextlib.suppress(OSError):
            line.send(
                {
                    "node": node,
                    "nonce": mine,
                    "proof": proof(secret, f"follow {node}", theirs, mine),
                }
            )
            answer = (line.receive() or {}).get("proof")
            if proves(answer, proof(secret, "lead", mine, theirs)):
                line.trust()
                return line
        line.close()
        time.sleep(0.5)
    raise Refused(f"the job's first node does not answer at {where[0]}:{where[1]}")


def follow() -> int:
    """Serve the first node's `srun`; the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return Follow(_joined()).run()
