"""A model by its name on a hub: what an export needs of it is fetched to huggingface_hub's cache.

Where that is, which hub is asked and with which token are that library's own settings: HF_HOME,
HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE. Small files come first and are checked, so that a model which
cannot be served is refused before its weights are fetched. No pickle is ever executed: see
`stored`.
"""

import argparse
import errno
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import huggingface_hub
from huggingface_hub import HfApi, constants, errors
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, disable_progress_bars

from default_package import vocabulary
from default_package.command import demand_room, digest, say
from default_package.errors import PackageError

from . import modules, snapshot, stored
from .configuration import Configuration

SMALL = f"""{snapshot.TOKENIZER_FILE} {snapshot.HEAD_FILE} tokenizer_config.json
sentence_*_config.json config_sentence_transformers.json */config.json README.md *.index.json
*_SparseStaticEmbedding/model.safetensors *_SparseStaticEmbedding/pytorch_model.bin
{modules.ROUTES} {modules.TABLE}""".split()
"""What is checked before weights are fetched; the largest is tokenizer.json with some 20 MB."""
DIGEST = re.compile("[0-9a-f]{64}")
"""A hub's name for a large file is its SHA-256. Another name says nothing of the bytes, and the
library fetches such a file."""
CURES = {401: "check the token in HF_TOKEN", 403: "check the token in HF_TOKEN"}
"""Of statuses for which the library has no error of its own."""
UNREACHABLE = (
    "{name} could not be fetched from {hub}, and not all of it is in {cache} ({why}): run again "
    "with a network, it goes on there"
)
REASONS: dict[type[Exception], str] = {
    errors.HFValidationError: "{name!r} is neither a folder nor the name of a model, such as "
    "BAAI/bge-m3",
    errors.GatedRepoError: "{name} is gated: accept its terms at {hub}/{name}, then name your "
    "token with HF_TOKEN",
    errors.RepositoryNotFoundError: "{hub} has no model {name} for you: check the name; if the "
    "model is private, name your token with HF_TOKEN",
    errors.RevisionNotFoundError: "{name} has no revision {revision!r}: name a branch, a tag or a "
    "whole commit behind @",
    errors.HfHubHTTPError: "{hub} answers {status} for {name}: {cure}",
    errors.FileMetadataError: UNREACHABLE,
    errors.HTTPError: UNREACHABLE,
    errors.LocalEntryNotFoundError: UNREACHABLE,
    errors.OfflineModeIsEnabled: UNREACHABLE,
    errors.RevisionResolutionError: UNREACHABLE,
    OSError: "cannot write to {path} ({why}): name another folder with HF_HOME",
}
"""The library's errors, the first that fits, as a sentence that says what to do."""


def resolve(name: str, revision: str) -> str:
    """The commit that a revision is; what the cache says where the hub cannot be reached."""
    with _explained(name, revision):
        return HfApi().resolve_revision(name, revision=revision).resolved


def fetch(name: str, commit: str, options: argparse.Namespace) -> tuple[Path, Collection[str]]:
    """The folder with what is needed of a model, and the names of all its files. Options are needed
    to tell what must be refused."""
    with _explained(name, commit):
        folder = _small_files(name, commit, ["config.json", modules.NAME])
        try:
            sizes, absent = _weights(name, commit, folder, options)
        except PackageError as error:
            # Sentences name the model and not a folder of the cache.
            text = str(error).replace(f"{folder}/", "").replace(f"{folder} ", "it ")
            raise PackageError(f"{name} at {commit[:12]}: {text}") from error
        # Where the library keeps the bytes of a model's files.
        blobs = folder.parents[1] / "blobs"
        began = sum(part.stat().st_size for part in blobs.glob("*.incomplete"))
        cure = ": free some room, or name another folder with HF_HOME"
        demand_room(Path(constants.HF_HUB_CACHE), sum(sizes[file] for file in absent) - began, cure)
        for at, file in enumerate(absent, 1):
            say(f"fetching {file} ({sizes[file] / 1e6:.0f} MB), {at} of {len(absent)}")
            _fetch_whole(name, commit, file, blobs)
    return folder, sizes


def _weights(
    name: str, commit: str, folder: Path, options: argparse.Namespace
) -> tuple[dict[str, int], list[str]]:
    """Names and sizes of all files of a model that can be served, and the weights among them that
    are not here yet."""
    Configuration(folder / "config.json")
    more = [snapshot.COLBERT_FILE] if options.token_vectors else []
    places = [module.place for module in modules.read(folder) if module.kind == "Dense"]
    more += [f"{place}/{file}" for place in places for file in stored.FILES]
    _small_files(name, commit, [*SMALL, *more])
    try:
        listed = huggingface_hub.get_cached_repo_tree(name, revision=commit)
        sizes = {file.path: file.size for file in listed}
    except errors.CachedRepoTreeNotFoundError:
        here = [path for path in folder.rglob("*") if path.is_file()]
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in here}
    said = snapshot.check(folder, sizes, options)
    files = snapshot.weight_files(folder, sizes)
    architecture = snapshot.read_config(said)
    vocabulary.read(folder / snapshot.TOKENIZER_FILE, architecture.pad_token_id)
    absent = [file for file in files if not (folder / file).exists()]
    if absent and all(file.endswith(".safetensors") for file in files):
        # Names, shapes and types of all tensors stand at the beginning of each file.
        read = partial(HfApi().parse_safetensors_file_metadata, name, revision=commit)
        try:
            headers = {tensor: about for f in files for tensor, about in read(f).tensors.items()}
        except errors.SafetensorsParsingError as error:
            raise PackageError(f"{files[0]} is not a safetensors file: {_line(error)}") from error
        snapshot.open_encoder(folder, said, headers)
    return sizes, absent


def _small_files(name: str, commit: str, patterns: list[str]) -> Path:
    with disable_progress_bars():
        return Path(
            huggingface_hub.snapshot_download(name, revision=commit, allow_patterns=patterns)
        )


def _fetch_whole(name: str, commit: str, file: str, blobs: Path) -> None:
    """Goes on where an earlier try ended. hf_hub_download deletes its part of a file when it fails.
    So the library's http_get writes to a part that stays, and hf_hub_download finds the whole file
    in its place."""
    url = huggingface_hub.hf_hub_url(name, file, revision=commit)
    about = huggingface_hub.get_hf_file_metadata(url, retry_on_errors=True)
    blob = blobs / str(about.etag)
    if DIGEST.fullmatch(blob.name) and not blob.exists():
        blob.parent.mkdir(parents=True, exist_ok=True)
        part = blob.with_name(f"{blob.name}.incomplete")
        with part.open("ab") as sink:
            if sink.tell() > (about.size or 0):
                sink.truncate(0)
            start = sink.tell()
            if start:
                say(f"going on at {start / 1e6:.0f} MB")
            # Parts of packed bytes could not be joined.
            whole = build_hf_headers(headers={"Accept-Encoding": "identity"})
            told = {"expected_size": about.size, "displayed_filename": file}
            http_get(url, sink, resume_size=start, headers=whole, **told)
        if digest(part) != blob.name:
            part.unlink()
            raise PackageError(f"{file} of {name} came with wrong bytes: run again")
        part.rename(blob)
    huggingface_hub.hf_hub_download(name, file, revision=commit)


@contextmanager
def _explained(name: str, revision: str) -> Iterator[None]:
    """Says REASONS in the place of the library's errors."""
    try:
        yield
    except Exception as error:
        known = (text for kind, text in REASONS.items() if isinstance(error, kind))
        text, number = next(known, None), getattr(error, "errno", None)
        # A full disk has a sentence for all commands.
        if text is None or number == errno.ENOSPC:
            raise
        # The system's errors have a number. One without is the library's: an answer was not whole.
        if text is REASONS[OSError] and number is None:
            text = UNREACHABLE
        status = getattr(getattr(error, "response", None), "status_code", 0)
        said = text.format(
            name=name,
            revision=revision,
            hub=constants.ENDPOINT,
            cache=constants.HF_HUB_CACHE,
            path=getattr(error, "filename", None) or constants.HF_HUB_CACHE,
            status=status,
            cure=CURES.get(status, "run again later"),
            why="HF_HUB_OFFLINE is set" if constants.is_offline_mode() else _line(error),
        )
        raise PackageError(said) from error


def _line(error: Exception) -> str:
    """The first line of the error that began it."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
