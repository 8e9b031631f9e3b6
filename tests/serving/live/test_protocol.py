"""The Open Inference Protocol, as the field's own client speaks it, and as nobody should."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from serving.live.nets import busy, copies, looks_up, models_file, sums, times
from serving.live.server import Server, ended, read, request, serving

KINDS = {
    "FP32": (TensorProto.FLOAT, np.float32),
    "FP64": (TensorProto.DOUBLE, np.float64),
    "FP16": (TensorProto.FLOAT16, np.float16),
    "INT8": (TensorProto.INT8, np.int8),
    "INT16": (TensorProto.INT16, np.int16),
    "INT32": (TensorProto.INT32, np.int32),
    "INT64": (TensorProto.INT64, np.int64),
    "UINT8": (TensorProto.UINT8, np.uint8),
    "UINT16": (TensorProto.UINT16, np.uint16),
    "UINT32": (TensorProto.UINT32, np.uint32),
    "UINT64": (TensorProto.UINT64, np.uint64),
    "BOOL": (TensorProto.BOOL, np.bool_),
    "BYTES": (TensorProto.STRING, np.object_),
}
ONE = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    times(folder / "double.onnx", 2)
    times(folder / "one by one.onnx", 3, (1, 4))
    sums(folder / "sums.onnx")
    looks_up(folder / "table.onnx")
    busy(folder / "busy.onnx", 3000)
    for name, (kind, _) in KINDS.items():
        copies(folder / f"{name}.onnx", kind)
    names = ["double", "one by one", "sums", "table", "busy", *KINDS]
    with serving(models_file(folder, names), "--body", "1MiB", "--held", "8MiB") as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(server.url)
    yield made
    made.close()


def given(name: str, array: Any, datatype: str, *, binary: bool = True) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def test_health_metadata_and_the_index(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")
    assert not client.is_model_ready("double", "2")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "ganger"
    assert client.get_model_metadata("sums") == {
        "name": "sums",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "b", "datatype": "FP32", "shape": [-1, 3]},
        ],
        "outputs": [
            {"name": "total", "datatype": "FP32", "shape": [-1, 3]},
            {"name": "larger", "datatype": "BOOL", "shape": [-1, 3]},
        ],
    }
    index = client.get_model_repository_index()
    assert {each["state"] for each in index} == {"READY"}
    assert "one by one" in {each["name"] for each in index}


@pytest.mark.parametrize("datatype", KINDS)
@pytest.mark.parametrize("binary", [True, False])
def test_tensors_of_every_type_come_back(
    client: triton.InferenceServerClient, datatype: str, binary: bool
) -> None:
    if datatype == "FP16" and not binary:
        pytest.skip("the client sends FP16 as binary data only")
    _, kind = KINDS[datatype]
    x: Any = np.array([[0, 1], [1, 0], [1, 1]]).astype(kind)
    if datatype == "BYTES":
        x = np.array([["", "a"], ["ü, 多", "b" * 1000], ['"', "\\"]], np.object_)
    wanted = triton.InferRequestedOutput("y", binary_data=binary)
    result = client.infer(
        datatype, [given("x", x, datatype, binary=binary)], outputs=[wanted], request_id="my-1"
    )
    y = result.as_numpy("y")
    if datatype == "BYTES":
        y = np.array([each.decode() if binary else each for each in y.ravel()]).reshape(y.shape)
    assert y.tolist() == x.tolist()
    assert result.get_response()["id"] == "my-1"


def test_several_inputs_and_outputs_some_of_them_binary(
    client: triton.InferenceServerClient,
) -> None:
    a, b = np.array([[1, 5, 3]], np.float32), np.array([[2, 2, 2]], np.float32)
    inputs = [given("b", b, "FP32", binary=False), given("a", a, "FP32")]
    both = client.infer("sums", inputs)
    assert both.as_numpy("total").tolist() == [[3, 7, 5]]
    assert both.as_numpy("larger").tolist() == [[False, True, True]]
    outputs = [triton.InferRequestedOutput("larger", binary_data=False)]
    some = client.infer("sums", inputs, outputs=outputs)
    assert some.as_numpy("total") is None
    assert some.get_response()["outputs"][0]["data"] == [False, True, True]


def test_statistics_say_why_batches_were_formed(client: triton.InferenceServerClient) -> None:
    def counts() -> Any:
        return client.get_inference_statistics("one by one")["model_stats"][0]

    before = counts()
    client.infer("one by one", [given("x", np.ones((1, 4), np.float32), "FP32")])
    after = counts()
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["reasons"]["batches"] == {"whatever waits": after["execution_count"]}


def test_metrics_for_prometheus(server: Server) -> None:
    assert server.infer("double", ONE).status == 200
    answer = server.ask("GET", "/metrics")
    lines = answer.body.decode().splitlines()
    assert any(
        line.startswith('ganger_serve_requests_total{model="double",outcome="answered"}')
        for line in lines
    )
    assert 'ganger_serve_build_info{recipe="serve.triton",version="0.1.0"} 1.0' in lines


def test_request_ids_come_back_or_are_made_up(server: Server) -> None:
    named = server.infer("double", ONE, **{"x-request-id": "trace-7"})
    assert named.headers["x-request-id"] == "trace-7"
    made = {server.infer("double", ONE).headers["x-request-id"] for _ in range(2)}
    assert len(made) == 2
    evil = server.infer("double", ONE, **{"x-request-id": "a" * 129})
    assert len(evil.headers["x-request-id"]) < 40


# ---------------------------------------------------------------------- what is wrong


def changed(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{**ONE["inputs"][0], **fields}]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "missing required field `inputs`"),
        ({"inputs": 3}, "Expected `array`"),
        ({"inputs": []}, "inputs none were given (give 'x')"),
        (changed(name="z"), "model 'double' has no input 'z' (it has 'x')"),
        (changed(datatype="FP64"), "its datatype is 'FP64' (the model takes FP32)"),
        (changed(shape=[1, 5]), "4 values for shape [1, 5] (give 5)"),
        (changed(shape=[2, 2]), "its shape is [2, 2] (give [-1, 4] (-1: any length))"),
        (changed(shape=[-1, 4]), "its shape is [-1, 4] (give lengths from 0 on)"),
        (changed(shape=[1 << 40, 4]), "its shape is"),
        (changed(shape=[0, 4], data=[]), "it brings no items"),
        (changed(shape=[9, 4], data=[0] * 36), "it brings 9 items, and model 'double' runs at mo"),
        (changed(data=["a", 2, 3, 4]), "its data are not FP32 in shape [1, 4]"),
        (changed(data=[[1, 2], [3]]), "its data are not FP32"),
        (changed(data=None), "its data are not FP32"),
        (changed(data=[True, 2, 3, 4]), "its data are not FP32"),
        (changed(parameters={"binary_data_size": 16}), "binary_data_size is 16, and 0 bytes fol"),
        (changed(parameters={"shared_memory_region": "a"}), "shared memory is not offered"),
        ({**ONE, "outputs": [{"name": "q"}]}, "model 'double' has no output 'q' (it has 'y')"),
        (
            {**ONE, "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
            "classification is not offered",
        ),
        ({**ONE, "parameters": {"timeout": -1}}, "timeout is -1 (give a number above 0)"),
        ({**ONE, "parameters": {"deadline_ms": "soon"}}, "deadline_ms is 'soon'"),
        ({**ONE, "id": "i" * 300}, "id: it has 300 letters"),
    ],
)
def test_a_wrong_request_gets_one_sentence(server: Server, body: Any, why: str) -> None:
    answer = server.infer("double", body)
    assert answer.status == 400, answer
    assert why in answer.error


def test_values_that_do_not_fit_their_type(server: Server) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "INT8", "data": [1, 300]}]}
    assert "a value does not fit into int8" in server.infer("INT8", body).error


@pytest.mark.parametrize(
    ("method", "path", "status", "why"),
    [
        ("GET", "/v2/models/nobody", 404, "there is no model 'nobody'"),
        ("GET", "/v2/models/double/versions/2", 404, "model 'double' has version 1"),
        ("GET", "/v2/models/%2e%2e%2fetc", 404, "there is no model '../etc'"),
        ("GET", "/", 404, "there is nothing at '/'"),
        ("GET", "/v2/models/double/infer", 405, "use POST here"),
        ("POST", "/v2/health/live", 405, "use GET or HEAD here"),
        ("POST", "/v2/repository/models/double/unload", 501, "models are not loaded or unl"),
        ("POST", "/v2/models/double/infer", 400, "body: it is not valid"),
    ],
)
def test_wrong_paths(server: Server, method: str, path: str, status: int, why: str) -> None:
    answer = server.ask(method, path)
    assert answer.status == status
    assert why in answer.error


def test_binary_tensors_that_do_not_add_up(server: Server) -> None:
    def ask(head: dict[str, Any], data: bytes, length: str = "") -> str:
        text = json.dumps(head).encode()
        headers = {"inference-header-content-length": length or str(len(text))}
        answer = server.ask("POST", "/v2/models/double/infer", text + data, headers)
        assert answer.status == 400
        return answer.error

    def sized(size: Any) -> dict[str, Any]:
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
        return {"inputs": [{**tensor, "parameters": {"binary_data_size": size}}]}

    assert "15 bytes for 4 values of FP32 (give 16)" in ask(sized(15), b"\0" * 15)
    assert "1 bytes belong to no input" in ask(sized(16), b"\0" * 17)
    assert "binary_data_size is 17, and 16 bytes follow" in ask(sized(17), b"\0" * 16)
    assert "binary_data_size is True" in ask(sized(True), b"\0" * 16)
    assert "bytes of JSON in a body of" in ask(sized(16), b"\0" * 16, "999")
    assert "it is not a number" in ask(sized(16), b"\0" * 16, "many")


def test_a_request_on_which_a_model_fails_fails_alone(server: Server) -> None:
    """Three requests in one connection's breath become one batch or several; only that with a row
    that the table does not have is answered with an error."""
    with server.connect() as sock:
        for row in (1, 7, 2):
            tensor = {"name": "x", "shape": [1], "datatype": "INT64", "data": [row]}
            body = json.dumps({"inputs": [tensor]}).encode()
            sock.sendall(request("POST", "/v2/models/table/infer", body))
        answers = [read_next(sock) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 500, 200]
    assert answers[0][1]["outputs"][0]["data"] == [2, 2]
    assert "model 'table' failed" in answers[1][1]["error"]


def read_next(sock: socket.socket) -> tuple[int, Any]:
    """One of several answers, byte by byte."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = b""
    while len(body) < length:
        body += sock.recv(length - len(body))
    return int(head.split()[1]), json.loads(body)


# ---------------------------------------------------------------------- what is hostile


@pytest.mark.parametrize(
    ("data", "status", "why"),
    [
        (b"\x16\x03\x01\x02\x00" * 10, 400, "it is not valid HTTP"),
        (b"GET / HTTP/1.1\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 400, "upgrades are"),
        (b"GET /v2 HTTP/1.1\r\nx: " + b"a" * 40_000, 431, "the head of a request may have 32768"),
        (b"GET /" + b"a" * 40_000, 431, "the head of a request"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999\r\n\r\n", 413, "the body of a re"),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
            400,
            "it is not valid HTTP",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"1;" + b"e" * 600_000,
            400,
            "the body is mostly not data",
        ),
    ],
)
def test_what_is_not_a_request_is_refused_and_ended(
    server: Server, data: bytes, status: int, why: str
) -> None:
    with server.connect() as sock:
        with contextlib.suppress(ConnectionError):  # it is ended before all is sent
            sock.sendall(data)
        answer = read(sock)
        assert answer.status == status
        assert why in answer.error
        assert answer.headers["connection"] == "close"


def test_a_chunked_body_is_read_and_bounded(server: Server) -> None:
    body = json.dumps(ONE).encode()
    head = b"POST /v2/models/double/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in (body[:9], body[9:])) + b"0\r\n\r\n"
    assert server.send(head + chunks).json["outputs"][0]["data"] == [2, 4, 6, 8]
    with server.connect() as sock:
        sock.sendall(head)
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            for _ in range(100):
                sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # it was ended in the middle
        assert read(sock).status == 413


def test_a_client_that_waits_for_leave_is_given_it(server: Server) -> None:
    body = json.dumps(ONE).encode()
    head = request("POST", "/v2/models/double/infer", body, {"expect": "100-continue"})
    with server.connect() as sock:
        sock.sendall(head[: -len(body)])
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert read(sock).status == 200


def test_bodies_of_all_connections_are_bounded_together(server: Server) -> None:
    """Twenty half bodies of 0.9 MiB are more than the 8 MiB that are held: some are refused."""
    held: list[socket.socket] = []
    refused = 0
    for _ in range(20):
        sock = server.connect()
        sock.sendall(b"POST /v2/models/double/infer HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        try:
            sock.sendall(b" " * 900_000)
            sock.settimeout(0.2)
            refused += read(sock).status == 503
        except TimeoutError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            refused += 1
        held.append(sock)
    assert 8 <= refused < 20
    for sock in held:
        sock.close()
    for _ in range(100):
        answer = server.infer("double", ONE)
        if answer.status == 200:
            return
        time.sleep(0.05)
    pytest.fail("what was held is not let go of")


def test_random_requests_get_answers_and_no_traceback(server: Server) -> None:
    """Requests with a few bytes changed: each is answered with a status, and the server lives."""
    rng = random.Random(11)
    text = json.dumps(ONE)
    before = server.memory_bytes()
    for _ in range(500):
        data = bytearray(request("POST", "/v2/models/double/infer", text.encode()))
        for _ in range(rng.choice((1, 1, 3, 10))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with server.connect() as sock:
            sock.sendall(bytes(data))
            sock.shutdown(socket.SHUT_WR)
            rest = sock.recv(1 << 16)
            assert not rest or rest.startswith(b"HTTP/1.1 ")
    assert server.infer("double", ONE).status == 200
    assert server.memory_bytes() < before + (32 << 20)


def test_many_idle_connections_take_nobody_s_place(server: Server) -> None:
    idle = [server.connect() for _ in range(300)]
    assert server.infer("double", ONE).status == 200
    for sock in idle:
        sock.close()


# ---------------------------------------------------------------------- time


def slow_body(items: int = 8, **parameters: Any) -> dict[str, Any]:
    tensor = {"name": "x", "shape": [items, 256], "datatype": "FP32", "data": [0.5] * items * 256}
    return {"inputs": [tensor], "parameters": parameters}


@pytest.mark.parametrize("parameters", [{"deadline_ms": 1}, {"timeout": 1000}])
def test_a_deadline_that_passes_is_answered_with_504(
    server: Server, parameters: dict[str, Any]
) -> None:
    answer = server.infer("busy", slow_body(**parameters))
    assert (answer.status, answer.error) == (504, "the deadline has passed")
    assert answer.headers["ganger-reason"] == "late"


def test_a_client_that_goes_away_is_given_up(server: Server) -> None:
    def given_up() -> int:
        stats = server.ask("GET", "/v2/models/busy/stats").json["model_stats"][0]
        return int(stats["reasons"]["requests"].get("given up", 0))

    before = given_up()
    body = json.dumps(slow_body()).encode()
    sock = server.connect()
    sock.sendall(request("POST", "/v2/models/busy/infer", body))
    time.sleep(0.02)
    sock.close()
    for _ in range(200):
        if given_up() == before + 1:
            return
        time.sleep(0.02)
    pytest.fail("the request is still under way")


def test_compressed_bodies_are_not_read(server: Server) -> None:
    answer = server.infer("double", ONE, **{"content-encoding": "gzip"})
    assert (answer.status, answer.error) == (415, "compressed bodies are not read")


def test_the_client_sees_what_is_wrong(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="its shape is"):
        client.infer("double", [given("x", np.ones((1, 5), np.float32), "FP32")])


def test_connections_that_are_closed_are_ended(server: Server) -> None:
    with server.connect() as sock:
        sock.sendall(request("GET", "/v2", headers={"connection": "close"}))
        assert read(sock).headers["connection"] == "close"
        assert ended(sock)
