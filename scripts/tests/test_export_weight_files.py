"""Reading safetensors and torch files, malicious and cut ones too."""

import sys
import zipfile
from pathlib import Path

import export_snapshots as snapshots
import numpy as np
import pytest
from export_snapshots import Pickle

from default_package.errors import PackageError
from model_export.stored import NAMES, read

VALUES = {
    "a.weight": np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 8,
    "b": np.asarray([0.5], np.float32),
    "scalar": np.asarray(-2.0, np.float32),
}


WRITERS = {".safetensors": snapshots.write_safetensors, ".bin": snapshots.write_torch}


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin"])
@pytest.mark.parametrize("kind", ["F64", "F32", "F16", "BF16"])
def test_files_are_read_in_every_float_format(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    WRITERS[path.suffix](path, VALUES, kind)
    found = read(path)
    assert found.keys() == VALUES.keys()
    for name, value in VALUES.items():
        whole = found[name].read()
        assert (whole.dtype, whole.shape, found[name].shape) == (np.float32, *[value.shape] * 2)
        np.testing.assert_array_equal(whole, value)
    np.testing.assert_array_equal(found["a.weight"].read(slice(1, 3)), VALUES["a.weight"][1:])


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin"])
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[path.suffix](path, VALUES)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(PackageError, match="cut short|not a zip file"):
            read(path)


def one_call(module: str, name: str, argument: str) -> bytes:
    """The classic attack: a pickle that calls `module.name(argument)` when it is loaded."""
    return Pickle().symbol(module, name).raw(b"(").text(argument).raw(b"tR.").data


def test_a_malicious_pickle_is_refused_and_never_runs(tmp_path: Path) -> None:
    path, trace = tmp_path / "sparse_linear.pt", tmp_path / "was_here"
    calls = [("os", "system"), ("builtins", "eval"), ("posix", "system"), ("pathlib", "Path.touch")]
    calls += [("torch", "load"), ("torch", "FloatStorage.from_file")]
    for module, name in calls:
        snapshots.write_archive(path, one_call(module, name, f"touch {trace}"), {})
        with pytest.raises(PackageError, match=f"would call {module}.{name}"):
            read(path)
    stacked = Pickle().text("os").text("system").raw(b"\x93.").data
    snapshots.write_archive(path, stacked, {})
    with pytest.raises(PackageError, match=r"would call os\.system"):
        read(path)
    assert not trace.exists()
    assert "torch" not in sys.modules


def tensor_pickle(**changes: object) -> bytes:
    """A table with one tensor `t` of shape [2, 3] in storage 0."""
    pickle = Pickle().table().text("t")
    return pickle.tensor("0", (2, 3), "FloatStorage", **changes).close().data


@pytest.mark.parametrize(
    ("pickle", "message"),
    [
        (b"", "malformed"),
        (b"\x80\x02.", "malformed"),
        (b"\x80\x02]q", "malformed"),
        (b"\x80\x02h\x07.", "malformed"),
        (b"\x80\x02N.", "does not hold a table"),
        (b"\x80\x02c", "malformed"),
        (b"(ios\nsystem\n.", "uses INST"),
        (b"\x80\x04}\x81.", "uses NEWOBJ"),
        (b"\x82\x01.", "uses EXT1"),
        (b"\x80\x02]X\x01\x00\x00\x00aNs.", "malformed"),
        (b"\x80\x02}Na.", "malformed"),
        (b"\x80\x02X\x01\x00\x00\x00aQ.", "malformed"),
        (b"\x80\x02NNN\x87Q.", "refers to something that is no storage"),
        (Pickle().symbol("torch", "FloatStorage").raw(b")R.").data, "malformed"),
        (Pickle().text("a").raw(b")R.").data, "malformed"),
        (Pickle().symbol("torch._utils", "_rebuild_tensor_v2").raw(b")R.").data, "malformed"),
        # It would make room for 2^32 objects.
        (b"\x80\x02}r\xff\xff\xff\xff.", "malformed"),
        (tensor_pickle(strides=(1, 2)), "not contiguous"),
        (tensor_pickle(offset=-1), "without storage, offset or shape"),
        (tensor_pickle(offset=1), "outside of"),
    ],
)
def test_a_pickle_of_no_tensors_is_refused(tmp_path: Path, pickle: bytes, message: str) -> None:
    path = tmp_path / "model.bin"
    snapshots.write_archive(path, pickle, {"0": bytes(24)})
    with pytest.raises(PackageError, match=message):
        read(path)


@pytest.mark.parametrize("by_attribute", [False, True])
@pytest.mark.parametrize("symbol", NAMES)
def test_a_pickle_cannot_change_what_it_names(
    tmp_path: Path, symbol: tuple[str, str], *, by_attribute: bool
) -> None:
    path = tmp_path / "model.bin"
    state = Pickle().text("__call__").number(1).raw(b"s").data[2:]
    state = b"N}" + state + b"\x86" if by_attribute else b"}" + state
    snapshots.write_archive(path, Pickle().symbol(*symbol).raw(state + b"b.").data, {})
    with pytest.raises(PackageError, match="malformed"):
        read(path)


def test_attributes_of_a_table_take_the_place_of_no_method(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    pickle = Pickle().table().text("t").tensor("0", (1,), "FloatStorage").raw(b"u}")
    data = pickle.text("items").number(1).raw(b"s").text("get").number(1).raw(b"sb.").data
    snapshots.write_archive(path, data, {"0": bytes(4)})
    assert read(path).keys() == {"t"}


def test_a_tensor_may_be_a_part_of_its_storage(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    storage = np.arange(8, dtype="<f4")
    snapshots.write_archive(path, tensor_pickle(offset=2), {"0": storage.tobytes()})
    np.testing.assert_array_equal(read(path)["t"].read(), storage[2:].reshape(2, 3))


@pytest.mark.parametrize(
    ("members", "message"),
    [({"0": bytes(20)}, "outside of"), ({}, "lacks the numbers of tensor t")],
)
def test_a_tensor_that_its_storage_cannot_hold_is_refused(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    path = tmp_path / "model.bin"
    snapshots.write_archive(path, tensor_pickle(), members)
    with pytest.raises(PackageError, match=message):
        read(path)


def test_archives_of_another_kind_are_refused(tmp_path: Path) -> None:
    path, members = tmp_path / "model.bin", {"0": bytes(24)}
    snapshots.write_archive(path, tensor_pickle(), members, byte_order=b"big")
    with pytest.raises(PackageError, match="not little endian"):
        read(path)
    snapshots.write_archive(path, tensor_pickle(), members, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(PackageError, match="or has them compressed"):
        read(path)
    for data in (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"", b"PK\x03\x04"):
        path.write_bytes(data)
        with pytest.raises(PackageError, match="not a zip file of torch.save"):
            read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(PackageError, match="not a zip file of torch.save"):
        read(path)


def test_an_archive_with_another_byte_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    snapshots.write_torch(path, {"t": np.ones((2, 3), np.float32)})
    whole, refused = path.read_bytes(), 0
    for at, byte in enumerate(whole):
        for change in (0x01, 0x80):
            path.write_bytes(whole[:at] + bytes([byte ^ change]) + whole[at + 1 :])
            try:
                # The name may be another one.
                [tensor] = read(path).values()
                tensor.read()
            except PackageError:
                refused += 1
    assert 0 < refused < 2 * len(whole)
