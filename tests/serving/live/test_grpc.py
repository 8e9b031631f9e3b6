"""The Open Inference Protocol over gRPC, as the field's own client speaks it, and as nobody should.

`make proto` needs grpcio-tools, the client tritonclient[grpc]; where they are not installed these
tests say so.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from serving.live.nets import busy, copies, looks_up, models_file, sums, times
from serving.live.rig import run
from serving.live.room import Room, keys_file
from serving.live.server import Server, serving
from serving.live.test_protocol import KINDS

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'ganger[grpc]'")
triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient[grpc] is not installed")

from google.protobuf import descriptor_pb2  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

from ganger.serving.calls import CallIds  # noqa: E402
from ganger.serving.grpc.messages import CLASSES, SERVICE  # noqa: E402
from ganger.serving.grpc.service import Address, GrpcService  # noqa: E402

FOLDER = Path(__file__).parents[3] / "src/ganger/serving/grpc"
ANN, BOB = "a" * 20, "b" * 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    times(folder / "double.onnx", 2)
    sums(folder / "sums.onnx")
    looks_up(folder / "table.onnx")
    busy(folder / "busy.onnx", 3000)
    for name, (kind, _) in KINDS.items():
        copies(folder / f"{name}.onnx", kind)
    names = ["double", "sums", "table", "busy", *KINDS]
    with serving(models_file(folder, names), "--grpc-port", "0", "--access-log") as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as made:
        yield made


def given(name: str, array: Any, datatype: str) -> Any:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


X = np.array([[1, 2, 3, 4]], np.float32)


def code_of(call: Callable[[], Any]) -> tuple[str, str]:
    """The status and the sentence that a call is answered with."""
    with pytest.raises(InferenceServerException) as refusal:
        call()
    return str(refusal.value.status()).removeprefix("StatusCode."), str(refusal.value.message())


# ---------------------------------------------------------------------- as it should be


def test_the_client_finds_what_is_served(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.get_server_metadata().name == "ganger"
    about = client.get_model_metadata("sums")
    assert [each.name for each in about.inputs] == ["a", "b"]
    assert [(each.name, each.datatype) for each in about.outputs] == [
        ("total", "FP32"),
        ("larger", "BOOL"),
    ]
    assert list(about.inputs[0].shape) == [-1, 3]
    index = client.get_model_repository_index().models
    assert {each.state for each in index} == {"READY"}
    assert len(index) == 4 + len(KINDS)


def test_tensors_of_every_type_come_back(client: Any) -> None:
    for name, (_, dtype) in KINDS.items():
        words = np.array([["a", "ü"]], np.object_)
        array = words if name == "BYTES" else np.array([[1, 0]], dtype)
        answer = client.infer(name, [given("x", array, name)], request_id=f"of {name}")
        result = answer.as_numpy("y")
        if name == "BYTES":
            result = np.array([[each.decode() for each in result[0]]], np.object_)
        assert result.tolist() == array.tolist(), name
        assert answer.get_response().id == f"of {name}"


def test_several_inputs_and_chosen_outputs(client: Any) -> None:
    a = np.ones((2, 3), np.float32)
    answer = client.infer(
        "sums",
        [given("b", a, "FP32"), given("a", 2 * a, "FP32")],
        outputs=[triton.InferRequestedOutput("larger")],
    )
    assert answer.as_numpy("larger").tolist() == [[True] * 3] * 2
    assert answer.as_numpy("total") is None


def test_values_that_come_as_contents_go_back_as_contents(server: Server) -> None:
    request = CLASSES["ModelInferRequest"](model_name="INT16")
    request.inputs.add(name="x", datatype="INT16", shape=[1, 2], contents={"int_contents": [5, -6]})
    response = ask(server, "ModelInfer", request)
    assert list(response.outputs[0].contents.int_contents) == [5, -6]
    assert not response.raw_output_contents


def test_a_deadline_of_grpc_is_heeded(server: Server, client: Any) -> None:
    """The server gives up what nobody waits for, and answers a deadline that the request states."""
    slow = given("x", np.full((8, 256), 0.5, np.float32), "FP32")
    began = time.monotonic()
    assert code_of(lambda: client.infer("busy", [slow], client_timeout=0.05))[0] == (
        "DEADLINE_EXCEEDED"
    )
    assert time.monotonic() - began < 10
    status, why = code_of(lambda: client.infer("busy", [slow], parameters={"deadline_ms": 1}))
    assert (status, why) == ("DEADLINE_EXCEEDED", "the deadline has passed")
    assert code_of(lambda: client.infer("busy", [slow], timeout=1000))[0] == "DEADLINE_EXCEEDED"
    for _ in range(400):
        stats = server.ask("GET", "/v2/models/busy/stats").json["model_stats"][0]
        outcomes = stats["reasons"]["requests"]
        if sum(outcomes.values()) == 3:
            break
        time.sleep(0.02)
    assert outcomes.get("answered", 0) == 0


# ---------------------------------------------------------------------- as it should not be


def ask(server: Server, method: str, request: Any, metadata: Any = None) -> Any:
    """A call as bytes: a message, or what is not one."""
    data = request if isinstance(request, bytes) else request.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/{method}")
        return CLASSES[f"{method}Response"].FromString(call(data, metadata=metadata, timeout=60))


def wrong(server: Server, request: Any, method: str = "ModelInfer") -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as refusal:
        ask(server, method, request)
    assert "Traceback" not in refusal.value.details()
    return refusal.value.code().name, refusal.value.details()


def request_of(model: str = "double", **tensor: Any) -> Any:
    request = CLASSES["ModelInferRequest"](model_name=model)
    fields = {"name": "x", "datatype": "FP32", "shape": [1, 4]} | tensor
    request.inputs.add(**fields)
    return request


@pytest.mark.parametrize(
    ("tensor", "raw", "why"),
    [
        ({"name": "z"}, [b""], "model 'double' has no input 'z'"),
        ({"datatype": "INT8"}, [bytes(4)], "input 'x': its datatype is 'INT8'"),
        ({"shape": [1, 5]}, [bytes(20)], "its shape is [1, 5]"),
        ({"shape": [-1, 4]}, [bytes(16)], "its shape is [-1, 4]"),
        ({"shape": [1 << 40, 1 << 40]}, [bytes(16)], "its shape is"),
        ({}, [bytes(15)], "15 bytes for 4 values of FP32"),
        ({}, [bytes(16), b""], "2 raw contents for 1 inputs"),
        ({}, [], "0 values for shape [1, 4]"),
        ({"contents": {"fp32_contents": [1] * 4}}, [bytes(16)], "it has contents and raw contents"),
        ({"contents": {"int_contents": [1] * 4}}, [], "0 values for shape [1, 4]"),
    ],
)
def test_tensors_that_are_not_valid_get_one_sentence(
    server: Server, tensor: dict[str, Any], raw: list[bytes], why: str
) -> None:
    request = request_of(**tensor)
    request.raw_input_contents.extend(raw)
    code, details = wrong(server, request)
    assert (code, why in details) == ("INVALID_ARGUMENT", True), details


def test_what_else_is_wrong_has_a_status_of_its_own(server: Server, client: Any) -> None:
    assert wrong(server, b"\xff\xff\xff")[0] == "INVALID_ARGUMENT"
    assert wrong(server, request_of("none"))[0] == "NOT_FOUND"
    assert wrong(
        server,
        request_of(
            "BYTES", datatype="BYTES", shape=[1, 2], contents={"bytes_contents": [b"\xff", b"a"]}
        ),
    )[1] == ("input 'x': a word is not UTF-8 (see the Open Inference Protocol v2)")
    twice = request_of()
    twice.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    twice.raw_input_contents.extend([bytes(16)] * 2)
    assert "is given twice" in wrong(server, twice)[1]
    load = CLASSES["RepositoryModelLoadRequest"](model_name="double")
    assert wrong(server, load, "RepositoryModelLoad")[0] == "UNIMPLEMENTED"
    failing = given("x", np.array([7], np.int64), "INT64")
    assert code_of(lambda: client.infer("table", [failing]))[0] == "INTERNAL"
    assert client.infer("double", [given("x", X, "FP32")]).as_numpy("y").tolist() == [[2, 4, 6, 8]]


def test_random_messages_leave_the_server_whole(server: Server, client: Any) -> None:
    rng = np.random.default_rng(5)
    good = request_of()
    good.raw_input_contents.append(bytes(16))
    data = good.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        codes = set()
        for _ in range(150):
            broken = bytearray(data)
            for at in rng.integers(0, len(broken), 3):
                broken[at] = rng.integers(256)
            codes.add(call.future(bytes(broken), timeout=60).code().name)
    assert codes <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert len(codes) > 1
    assert client.is_server_ready()


# ---------------------------------------------------------------------- keys, in this process


def test_keys_rates_and_what_is_kept_are_those_of_http(tmp_path: Path) -> None:
    times(tmp_path / "double.onnx", 2)
    terms = {"ann": f'keys = ["{ANN}"]\nrate = 0.1\nburst = 3', "bob": f'keys = ["{BOB}"]'}
    keys = keys_file(tmp_path, **terms)
    file = models_file(tmp_path, ["double"])

    async def story() -> None:
        seen: list[tuple[str, int]] = []
        async with Room(file, keys=keys) as room:
            service = GrpcService(
                room.desk,
                lambda call, status, _: seen.append((call.id if call else "", status)),
                CallIds(),
            )
            port = await service.start(Address("127.0.0.1", 0, 1 << 20, 100))
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            request = request_of()
            request.id = "mine"
            request.raw_input_contents.append(X.tobytes())

            async def code(*metadata: tuple[str, str], method: str = "ModelInfer") -> Any:
                call = channel.unary_unary(f"/{SERVICE}/{method}")(
                    request.SerializeToString() if method == "ModelInfer" else b"",
                    metadata=metadata,
                )
                trailing = dict(iter(await call.trailing_metadata()))
                return (await call.code()).name, trailing

            assert (await code())[0] == "UNAUTHENTICATED"
            bearer = [("authorization", f"Bearer {each}") for each in (ANN, BOB, ANN + "x")]
            assert (await code(bearer[0], bearer[1]))[0] == "UNAUTHENTICATED"
            assert (await code(bearer[2]))[0] == "UNAUTHENTICATED"
            assert (await code(bearer[2], method="RepositoryIndex"))[0] == "UNAUTHENTICATED"
            assert (await code(method="ServerReady"))[0] == "OK"
            for _ in range(3):  # the second and third are answered by what is kept
                assert await code(bearer[0], ("x-request-id", "r")) == ("OK", {"x-request-id": "r"})
            assert len(room.batches()) == 1
            status, trailing = await code(bearer[0])
            assert status == "RESOURCE_EXHAUSTED"
            assert trailing["ganger-reason"] == "rate"
            assert 1 <= int(trailing["retry-after"]) <= 10
            assert (await code(bearer[1]))[0] == "OK"
            assert len(room.batches()) == 2
            assert [status for _, status in seen] == [200, 200, 200, 200, 429, 200]
            await channel.close()
            await service.stop(0)

    run(lambda: asyncio.wait_for(story(), 60))


# ---------------------------------------------------------------------- the messages


def descriptor() -> Any:
    data = (FOLDER / "open_inference.binpb").read_bytes()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(data).file
    return file


def test_the_descriptors_are_those_of_the_text(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    out = tmp_path / "made.binpb"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            "-I",
            str(FOLDER),
            f"--descriptor_set_out={out}",
            "open_inference.proto",
        ],
        check=True,
    )
    (made,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    assert made == descriptor()


def test_every_field_has_the_number_that_the_client_has() -> None:
    """Of the messages that both have; the client's may have more."""
    from tritonclient.grpc import service_pb2

    def fields(message: Any) -> dict[str, tuple[int, int]]:
        return {each.name: (each.number, each.type) for each in message.field}

    theirs = descriptor_pb2.FileDescriptorProto()
    service_pb2.DESCRIPTOR.CopyToProto(theirs)
    known = {each.name: each for each in theirs.message_type}
    compared = 0
    for message in descriptor().message_type:
        for own, other in [
            (message, known[message.name]),
            *(
                (each, nested)
                for each in message.nested_type
                for nested in known[message.name].nested_type
                if nested.name == each.name
            ),
        ]:
            assert fields(own).items() <= fields(other).items(), own.name
            compared += len(own.field)
    assert compared > 50


def test_both_sets_of_messages_live_in_one_process() -> None:
    assert TensorProto.FLOAT  # onnx has messages of its own, too
    theirs = triton.service_pb2.ModelInferRequest(model_name="m", id="i")
    ours = CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString())
    assert (ours.model_name, ours.id) == ("m", "i")
