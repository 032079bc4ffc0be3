"""Models by name: what is fetched from a hub, kept, gone on with and refused."""

import fcntl
import json
import resource
import shutil
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import export_snapshots as snapshots
import fake_hub
import numpy as np
import pytest
from export_packages import manifest_of, refusal, run
from fake_hub import NAME, FakeHub
from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils._http import default_client_factory
from program_files import SCRIPTS
from program_files import run as run_program

from default_package import command
from default_package.choices import Pooling
from default_package.errors import PackageError
from model_export import kept

WEIGHTS = "model.safetensors"
CHUNK = 1000
FLAGS = ("--precision", "fp32", "--skip-verify")
CARD = "---\nlicense: mit\n---\n"
Files = dict[str, bytes]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Of a model as BGE-M3 is published, and some that nobody needs."""
    folder = snapshots.write(tmp_path / "published", container="torch").folder
    snapshots.write(folder)
    (folder / "README.md").write_text(CARD)
    (folder / "onnx").mkdir()
    (folder / "onnx/model.onnx").write_bytes(bytes(30_000))
    files = fake_hub.files_of(folder)
    shutil.rmtree(folder)
    return files


@pytest.fixture
def hub(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", CHUNK)
    monkeypatch.setattr(constants, "ENDPOINT", fake_hub.URL)
    # Nobody waits before the next try.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    template = f"{fake_hub.URL}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    hub = FakeHub()
    hub.publish(files)
    set_client_factory(hub.client)
    yield hub
    set_client_factory(default_client_factory)


def export(*words: str, model: str = NAME) -> Path:
    """The package that the command prints."""
    with redirect_stdout(StringIO()) as said:
        assert run("--model", model, *FLAGS, *words) == 0
    return Path(said.getvalue().strip())


def refused(*words: str, model: str = NAME) -> str:
    """The last line of what it says."""
    return refusal("--model", model, *FLAGS, *words).splitlines()[-1]


def test_a_name_is_enough_and_the_second_start_asks_nobody(hub: FakeHub, tmp_path: Path) -> None:
    package = export()
    commit = hub.revisions["main"]
    assert package.parent == tmp_path / "cache/models/someone--tiny-m3"
    manifest = manifest_of(package)
    assert (manifest["model_id"], manifest["aliases"]) == ("tiny-m3", [NAME])
    assert (manifest["revision"], manifest["license"]) == (commit, "mit")
    assert manifest["sparse"] and manifest["pooling"] == "cls"
    fetched = {path.rpartition("/")[2] for method, path, _ in hub.requests if method == "GET"}
    assert WEIGHTS in fetched
    assert not fetched & {"pytorch_model.bin", "model.onnx"}
    assert not hub.leaked
    hub.requests.clear()
    # An interpreter without packages, as a command has that only looks for what is kept.
    bare = [sys.executable, "-S", "-s", SCRIPTS / "export_onnx.py", *FLAGS, "--model", NAME]
    again = run_program(*bare, HF_ENDPOINT=fake_hub.URL)
    assert (again.stdout, again.stderr) == (f"{package}\n", "")
    assert export() == package
    assert export(model=f"{NAME}@{commit}") == package
    snapshot = Path(constants.HF_HUB_CACHE) / "models--someone--tiny-m3/snapshots" / commit
    same = export(model=str(snapshot))
    assert manifest_of(same) == manifest
    assert export(model=str(package)) == package
    assert hub.requests == []


def test_a_folder_stands_in_the_names_place(tmp_path: Path, hub: FakeHub) -> None:
    folder = snapshots.write(tmp_path / "mine").folder
    package = export(model=str(folder))
    assert manifest_of(package)["model_id"] == "mine"
    assert manifest_of(package)["aliases"] == []
    assert export(model=str(folder)) == package
    snapshots.write_modules(folder, Pooling.MEAN)
    other = export(model=str(folder))
    assert manifest_of(other)["pooling"] == "mean"
    assert hub.requests == []


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "pytorch_model.bin"])
def test_a_module_that_is_written_anew_makes_another_model(tmp_path: Path, name: str) -> None:
    file = tmp_path / "2_Dense" / name
    file.parent.mkdir()
    file.write_bytes(b"old")
    before = kept.state(tmp_path)
    file.write_bytes(b"newer")
    assert kept.state(tmp_path) != before


@pytest.mark.parametrize("name", [WEIGHTS, "pytorch_model.bin"])
def test_weights_are_taken_as_they_are_published(hub: FakeHub, files: Files, name: str) -> None:
    """BGE-M3 has pytorch_model.bin and no safetensors."""
    del files[{WEIGHTS: "pytorch_model.bin"}.get(name, WEIGHTS)]
    export()
    assert hub.sent(name) == [None]


def kept_of(size: int) -> int:
    """Bytes of an answer that was cut in its middle: whole chunks."""
    return size // 2 // CHUNK * CHUNK


def test_a_connection_that_is_cut_goes_on(hub: FakeHub, files: Files) -> None:
    hub.cuts = 2
    export()
    first = kept_of(len(files[WEIGHTS]))
    second = first + kept_of(len(files[WEIGHTS]) - first)
    assert hub.sent(WEIGHTS) == [None, f"bytes={first}-", f"bytes={second}-"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on_with_the_next_run(
    hub: FakeHub, files: Files, monkeypatch: pytest.MonkeyPatch, *, ranges: bool
) -> None:
    hub.cuts, hub.ranges = 1, ranges
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", Mock(side_effect=KeyboardInterrupt))
        assert run("--model", NAME, *FLAGS) == 130
    export()
    assert hub.sent(WEIGHTS) == [None, f"bytes={kept_of(len(files[WEIGHTS]))}-"]


def test_wrong_bytes_are_not_kept(hub: FakeHub) -> None:
    hub.wrong_bytes = True
    assert "came with wrong bytes: run again" in refused()
    hub.wrong_bytes = False
    export()


@pytest.mark.parametrize("names", ["ghijklmnopqrstuv", "0123456789ABCDEF"])
def test_a_name_of_64_letters_that_is_no_digest_is_the_librarys_to_fetch(
    hub: FakeHub, names: str
) -> None:
    hub.names = names
    export()
    # From its beginning to its end, in one request.
    assert hub.sent(WEIGHTS) == [None]


def test_a_gated_model_needs_a_token_which_stays_with_the_hub(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated = True
    assert refused() == (
        f"error: {NAME} is gated: accept its terms at {fake_hub.URL}/{NAME}, then name your token "
        "with HF_TOKEN"
    )
    monkeypatch.setenv("HF_TOKEN", "good")
    export()
    assert not hub.leaked


def test_a_revision_that_moves_is_taken_when_it_is_asked_for(hub: FakeHub, files: Files) -> None:
    first = export()
    hub.revisions["v1"] = hub.revisions["main"]
    commit = hub.publish(files | {"README.md": b"---\nlicense: apache-2.0\n---\n"})
    assert export() == first
    second = export("--update")
    assert manifest_of(second)["revision"] == commit
    assert manifest_of(second)["license"] == "apache-2.0"
    assert export() == second
    assert export(model=f"{NAME}@v1") == first
    assert len(hub.sent(WEIGHTS)) == 1


def test_other_wishes_are_another_package_and_need_no_network(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export()
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    second = export("--no-sparse", "--query-prompt", "find: ", "--max-tokens", "20")
    assert second != first
    manifest = manifest_of(second)
    assert (manifest["sparse"], manifest["prompts"]) == (None, {"query": "find: "})
    assert (manifest["default_prompt"], manifest["max_input_tokens"]) == ("query", 20)
    third = export("--query-prompt", "")
    assert manifest_of(third)["prompts"] == {"query": ""}
    assert hub.requests == []


def test_more_tokens_than_the_network_takes_are_refused_before_weights_are_fetched(
    hub: FakeHub,
) -> None:
    assert "--max-tokens is 39: the model takes 38" in refused("--max-tokens", "39")
    assert hub.sent(WEIGHTS) == []


def test_token_vectors_are_fetched_when_they_are_asked_for(
    hub: FakeHub, files: Files, tmp_path: Path
) -> None:
    head = {"weight": np.ones((12, 16), np.float32), "bias": np.ones(12, np.float32)}
    snapshots.write_torch(tmp_path / "head", head)
    said = refused("--token-vectors")
    assert "colbert_linear.pt is missing, the head for token vectors" in said
    assert hub.sent(WEIGHTS) == []
    hub.publish(files | {"colbert_linear.pt": (tmp_path / "head").read_bytes()})
    plain = export("--update")
    assert "token_vector_size" not in manifest_of(plain)
    assert hub.sent("colbert_linear.pt") == []
    package = export("--token-vectors")
    assert manifest_of(package)["token_vector_size"] == 12
    assert len(hub.sent(WEIGHTS)) == 1


def test_who_gets_no_token_vectors_is_told_of_them_once(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = snapshots.write(tmp_path / "mine", token_width=12).folder
    hub.publish(fake_hub.files_of(folder))
    told = "token vectors are left out: --token-vectors takes them in"
    for model in (NAME, str(folder)):
        export(model=model)
        assert capsys.readouterr().err.count(told) == 1
        export("--token-vectors", model=model)
        assert told not in capsys.readouterr().err


def test_weights_of_dense_modules_are_fetched_from_any_folder(hub: FakeHub, tmp_path: Path) -> None:
    folder = snapshots.write(tmp_path / "model").folder
    snapshots.write_modules(folder, Pooling.CLS, "Dense")
    listed = (folder / "modules.json").read_text()
    (folder / "modules.json").write_text(listed.replace("2_Dense", "2_Dense_8"))
    (folder / "2_Dense_8").mkdir()
    about = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    snapshots.put(folder / "2_Dense_8/config.json", about)
    product = {"linear.weight": np.eye(8, 16, dtype=np.float32)}
    snapshots.write_safetensors(folder / "2_Dense_8" / WEIGHTS, product)
    hub.publish(fake_hub.files_of(folder))
    assert manifest_of(export())["hidden_size"] == 8


def test_the_table_of_questions_is_fetched_with_the_small_files(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.publish(fake_hub.files_of(snapshots.copied("distilbert-words", tmp_path)))
    package = export()
    assert manifest_of(package)["sparse"]["questions"] == "questions.f32"
    assert len(hub.sent(WEIGHTS)) == 1


def config(**changes: object) -> Callable[[Files], Files]:
    """The files with other keys in config.json."""

    def changed(files: Files) -> Files:
        content = json.loads(files["config.json"]) | changes
        return files | {"config.json": json.dumps(content).encode()}

    return changed


def without(*names: str) -> Callable[[Files], Files]:
    return lambda files: {name: data for name, data in files.items() if name not in names}


def quantized(files: Files) -> Files:
    name = b"encoder.layer.0.output.dense.weight"
    at = files[WEIGHTS].index(b'"F32"', files[WEIGHTS].index(name))
    data = files[WEIGHTS]
    return files | {WEIGHTS: data[:at] + b'"I32"' + data[at + 5 :]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (config(model_type="t5"), "config.json has model_type 't5': only bert, "),
        (
            config(auto_map={"AutoModel": "x.Y"}),
            "the model brings code of its own, which is never run: choose a model without it",
        ),
        (
            config(quantization_config={"bits": 4}),
            "quantization_config {'bits': 4}: its weights are quantized: name",
        ),
        (quantized, "output.dense.weight of the weights is stored as I32: its weights are quant"),
        (config(num_hidden_layers=3), "lack the tensor encoder.layer.2.attention.self.query"),
        (without("tokenizer.json"), "tokenizer.json is missing: save the model with AutoTokenizer"),
        (without(WEIGHTS, "pytorch_model.bin"), "it has no weights that can be read, neither mod"),
        (without("sparse_linear.pt"), "sparse_linear.pt is missing, the sparse head of BGE-M3: ad"),
        (without("1_Pooling/config.json"), "1_Pooling/config.json is missing, so that nothing s"),
        (without("config.json"), "config.json is missing: name the folder of a model"),
        (lambda files: files | {"tokenizer.json": b"{}"}, "tokenizer.json is not a tokenizer that"),
    ],
)
def test_what_cannot_be_served_is_refused_before_its_weights_are_fetched(
    hub: FakeHub, files: Files, change: Callable[[Files], Files], sentence: str
) -> None:
    commit = hub.publish(change(files) | {"colbert_linear.pt": b"of BGE-M3"})
    answer = refused()
    assert answer.startswith(f"error: {NAME} at {commit[:12]}: ")
    assert sentence in answer
    assert hub.sent(WEIGHTS) == hub.sent("pytorch_model.bin") == []


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("someone/absent", "has no model someone/absent for you: check the name; if the model is"),
        (f"{NAME}@v9", f"{NAME} has no revision 'v9': name a branch, a tag or a whole commit"),
        (f"{NAME}@{'0' * 40}", "has no revision '000"),
        ("no name", "'no name' is neither a folder nor the name of a model, such as BAAI/bge-m3"),
        ("/absent", "/absent is no folder: name the folder of a model, or its name on the hub"),
    ],
)
def test_a_name_that_is_none_is_one_sentence(hub: FakeHub, model: str, sentence: str) -> None:
    assert sentence in refused(model=model)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (403, "answers 403 for someone/tiny-m3: check the token in HF_TOKEN"),
        (429, "answers 429 for someone/tiny-m3: run again later"),
        (503, "could not be fetched from"),
    ],
)
def test_a_hub_that_refuses_is_one_sentence(hub: FakeHub, status: int, sentence: str) -> None:
    hub.status = status
    assert sentence in refused()
    hub.status = 0
    export()
    # What is kept needs no hub.
    hub.status = status
    export()


@pytest.mark.parametrize("name", [NAME, "mine"])
def test_one_process_makes_a_package_of_a_name_or_a_folder(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """test_default_package.py has what others do meanwhile."""
    folder = snapshots.write(tmp_path / "mine").folder
    place = tmp_path / "cache/models" / name.replace("/", "--")

    def export(*_: object) -> None:
        with (place / ".lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise PackageError("others must wait")

    monkeypatch.setattr("model_export.export.export", export)
    monkeypatch.setattr(command, "locked", locked := Mock(wraps=command.locked))
    model = str(folder) if name == "mine" else name
    assert refused(model=model) == "error: others must wait"
    locked.assert_called_with(place, f"makes a package of {name}")


def test_without_a_network_the_sentence_says_so(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "(HF_HUB_OFFLINE is set): run again with a network" in refused()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.unreachable = True
    assert f"{NAME} could not be fetched from {fake_hub.URL}" in refused()


def test_an_answer_that_is_not_whole_is_no_fault_of_the_disk(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Consistency check failed: file should be of size 9 but has size 8.\nRetry"
    monkeypatch.setattr("model_export.hub.http_get", Mock(side_effect=OSError(said)))
    said = refused()
    assert f"{NAME} could not be fetched from {fake_hub.URL}" in said
    assert "(Consistency check failed: file should be of size 9 but has size 8): run again" in said


def test_a_cache_that_cannot_be_written_is_named(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file/hub"))
        assert "name another folder with HF_HOME" in refused()
    monkeypatch.setenv("DUOVEC_CACHE_DIR", str(tmp_path / "file/cache"))
    assert refused().startswith(f"error: {tmp_path}/file/cache")


@pytest.mark.filterwarnings("ignore:Not enough free disk space")
def test_a_full_disk_keeps_what_is_there(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    package = export()
    shutil.rmtree(constants.HF_HUB_CACHE)
    with monkeypatch.context() as patch:
        usage = namedtuple("usage", "free")
        patch.setattr(shutil, "disk_usage", lambda _: usage(10_000))
        assert "MB are needed: free some room" in refused("--no-sparse")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # More than the tokenizer, less than the weights.
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        answer = refused("--no-sparse")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write to" in answer
    assert export() == package
    hub.requests.clear()
    export("--no-sparse")
    assert hub.sent(WEIGHTS) == ["bytes=40000-"]
