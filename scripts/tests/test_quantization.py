"""Graphs in 8 bits: quantize_package.py on a small random package, what is kept of the default one,
and what both are measured with."""

import argparse
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import openvino
import pytest
from export_packages import check_files, digests, made, manifest_of, random_model

import quantize_package
from debian_texts import passages
from debian_texts.guide import GuideParser, GuideSection, read_sections
from default_package import manifest
from default_package.errors import PackageError
from default_package.reference import Found
from quantization import add, fp8, guide, int8, kept, score
from quantization.guide import make
from quantization.score import Collection, Embedded, Package, Passage, Query

LANGUAGES = ("de", "en")
PAGES = Collection(
    [Passage(lang, f"a text in {lang}") for lang in LANGUAGES],
    [Query(lang, "a", (at,)) for at, lang in enumerate(LANGUAGES)],
)


@pytest.fixture(scope="module", autouse=True)
def pages() -> Iterator[None]:
    """What graphs are measured with is not fetched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guide, "make", lambda _: PAGES)
        patch.setattr(add, "LANGUAGES", LANGUAGES)
        yield


def quantize(package: Path, precision: str, *, quick: bool = False, keep: bool = False) -> None:
    add.run(argparse.Namespace(precision=precision, package=package, quick=quick, keep=keep))


SIZES = {"layers": 1, "hidden": 256, "ffn": 256}
"""Large enough for a file of 8-bit numbers, and for wide columns."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package `plain`, with `rounded` that has a graph in 8 bits too, and with
    what is kept of that."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "PATH", folder / "kept.json")
        # Without prompts, as BGE-M3 is.
        flags = ["--precision", "fp32", "--skip-verify"]
        made(folder / "plain", *random_model(positions=600, **SIZES), *flags)
        shutil.copytree(folder / "plain", folder / "rounded")
        # What an earlier version made is replaced.
        (folder / "rounded/model.int8.xml").write_text("old")
        quantize(folder / "rounded", "int8", keep=True)
    return folder


@pytest.fixture
def package(both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`plain`; what a test does to it and to what is kept is gone afterwards."""
    monkeypatch.setattr(kept, "PATH", Path(shutil.copy(both / "kept.json", tmp_path)))
    return shutil.copytree(both / "plain", tmp_path / "mine")


ADDED = ("model.int8.onnx", "model.int8.onnx.data")


def test_a_package_gets_a_graph_with_what_it_costs(package: Path) -> None:
    before = manifest_of(package)
    for _ in range(2):
        quantize(package, "fp8")
        check_files(package)
        after = manifest_of(package)
        about = after.pop("fp8")
        assert about["file"] == "model.fp8.onnx" and about["tolerances"] == fp8.TOLERANCES
        [score] = about["retrieval"]
        assert (score["collection"], score["queries"]) == ("installation guide, de, en", 2)
        assert score["f32"] == score["fp8"] == {"dense": 1.0, "sparse": 1.0}
        for name in ("model.fp8.onnx", "model.fp8.onnx.data"):
            del after["files"][name]
        assert after == before
    assert {path.name for path in package.parent.iterdir()} == {"mine", "kept.json"}


def test_a_graph_that_is_too_far_from_f32_leaves_the_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(package)
    monkeypatch.setattr(fp8, "TOLERANCES", {"dense_cosine_min": 1.0, "sparse_max_abs": 0.1})
    with pytest.raises(PackageError, match="vectors of the canary"):
        quantize(package, "fp8")
    assert digests(package) == before


def test_inputs_are_seen_over_all_texts(package: Path) -> None:
    ids = [[0, 5, 6, 2], [0, 7, 2], [0, 8, 9, 10, 2]]
    each = [fp8.calibrate(package / "model.onnx", [sequence]) for sequence in ids]
    together = fp8.calibrate(package / "model.onnx", ids)
    assert len(together) == 4
    for name in ("embedding.norm", "layer0.ffn.gelu"):
        assert together[name].largest == max(one[name].largest for one in each) > 0
        sums = sum(one[name].moments for one in each)
        np.testing.assert_allclose(together[name].moments, sums, rtol=1e-5, atol=1e-5)
        assert np.diag(sums).min() >= 0 and sums.shape[0] == 256
    assert len({one["layer0.ffn.gelu"].largest for one in each}) > 1


def test_a_package_gets_a_graph_whose_products_are_in_8_bits(both: Path) -> None:
    check_files(both / "rounded")
    before, after = manifest_of(both / "plain"), manifest_of(both / "rounded")
    about = after.pop("quantized")
    assert (about["file"], about["tolerances"]) == ("model.int8.onnx", int8.TOLERANCES)
    assert about["retrieval"][0]["int8"] == {"dense": 1.0, "sparse": 1.0}
    added = {name: after["files"].pop(name) for name in ADDED}
    assert after == before
    # The word table is not there twice.
    assert added["model.int8.onnx.data"]["bytes"] == 6 * 256 * 256
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(both / "rounded/model.int8.onnx", "CPU", hint)
    nodes = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    layers = [node for node in nodes if node["layerType"].astype(str) == "FullyConnected"]
    kinds = Counter(node["runtimePrecision"].astype(str) for node in layers)
    # The sparse head is in f32.
    assert kinds == {"u8": 6, "f32": 1}


def test_kept_results_give_the_graph_that_was_measured_without_measuring(
    both: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(guide, "make")
    for quick in (True, False):
        quantize(package, "int8", quick=quick)
        assert digests(package) == digests(both / "rounded")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda kept: kept["sources"].clear(), r"quantize_package.py --package \S+ \(minutes\)$"),
        # The graph was rounded in another way.
        (
            lambda kept: kept["ranges"]["embedding.norm"].update(largest=4.0),
            r"not the one .*--keep$",
        ),
        (lambda kept: kept["retrieval"][0]["int8"].update(sparse=0.98), r"sparse .* en is 0\.98"),
    ],
)
def test_results_of_another_graph_are_refused_with_what_to_run(
    package: Path, edit: Callable[[dict], None], message: str
) -> None:
    before, content = digests(package), json.loads(kept.PATH.read_text(encoding="utf-8"))
    edit(content)
    kept.PATH.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PackageError, match=message):
        quantize(package, "int8", quick=True)
    assert digests(package) == before


def test_a_graph_that_nothing_is_kept_of_is_measured(package: Path) -> None:
    content = json.loads(kept.PATH.read_text(encoding="utf-8"))
    kept.PATH.write_text(json.dumps(content | {"sources": {}}), encoding="utf-8")
    quantize(package, "int8")
    assert "quantized" in manifest_of(package)


def test_what_the_repository_keeps_is_of_a_graph_that_is_good_enough() -> None:
    content = json.loads(kept.PATH.read_text(encoding="utf-8"))
    found = kept.find({"files": {n: {"sha256": d} for n, d in content["sources"].items()}})
    assert found is not None
    assert sorted(found.graph) == ["model.int8.onnx", "model.int8.onnx.data"]
    assert len(found.ranges) == 48 and len(found.retrieval) == 1


def test_wide_columns_are_divided_down_to_the_widest_of_the_others() -> None:
    least, largest = np.full(96, -0.5, np.float32), np.full(96, 1.0, np.float32)
    least[7], largest[90] = -8.0, 3.0
    assert int8.range_of(least, largest) == int8.Range(-1.0, 1.0, [7, 90], [8.0, 3.0])
    # Zero is always within, and an input may be all zeros.
    assert int8.range_of(largest, largest) == int8.Range(0.0, 1.0, [0, 90], [1.0, 3.0])
    nothing = np.zeros(8, np.float32)
    assert int8.range_of(nothing, nothing) == int8.Range(0.0, 0.0, [], [])


@pytest.mark.parametrize("flag", ["--quick", "--keep"])
def test_nothing_is_kept_for_fp8(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["quantize_package.py", "--precision", "fp8", flag])
    with pytest.raises(SystemExit, match="2"):
        quantize_package.main()
    assert "nothing is kept for fp8" in capsys.readouterr().err


def test_prompts_and_dropped_ids_have_no_weight_and_equal_texts_run_once() -> None:
    class Words:
        dropped, pooling = frozenset({0, 2}), "cls"

        def encode(self, texts: list[str], kind: str) -> tuple[list[list[int]], int]:
            assert (texts, kind) == (["a", "b"], "query")
            return [[0, 9, 5, 7, 5, 2], [0, 9, 6, 2]], 2

    class Fixed:
        def run(self, sequences: list[list[int]], pooling: str) -> list[Found]:
            assert pooling == "cls"
            weights = np.asarray([0.9, 0.8, 0.1, 0.0, 0.3, 0.7], np.float32)
            return [Found(np.ones(2), weights[: len(ids)]) for ids in sequences]

    embed = score.embedder(Words(), Fixed())  # type: ignore[arg-type]
    second, first, again = embed(["b", "a", "b"], "query")
    assert again is second
    assert first.sparse == pytest.approx({5: 0.3})
    assert second.sparse == pytest.approx({6: 0.1})


def embedded(sparse: dict[int, float]) -> score.Embed:
    """Texts are unit vectors: `a` and `b` stand at right angles."""
    dense = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    return lambda texts, _: [Embedded(np.asarray(dense[text]), sparse) for text in texts]


def test_scores_are_over_all_queries_each_in_its_target_language() -> None:
    passages = [Passage(lang, text) for lang in ("en", "de") for text in ("a", "b")]
    asked = [("en", (0,)), ("de", (3,)), ("de", (3,))]
    queries = [Query(lang, "a", right) for lang, right in asked]
    found = score.ndcg(Collection(passages, queries), embedded({5: 1.0}))
    # The first finds its passage, the others rank theirs second. Equal weights rank as they stand.
    second = pytest.approx((1 + 2 * 0.6309) / 3, abs=1e-4)
    assert found == {"dense": second, "sparse": second}


def test_a_package_without_lexical_weights_is_measured_by_its_dense_vectors(tmp_path: Path) -> None:
    dense_only = {"format_version": manifest.FORMAT_VERSION, "model_id": "m", "prompts": {}}
    dense_only |= {"sparse": None, "max_input_tokens": 8, "pad_token_id": 1, "pooling": "mean"}
    (tmp_path / "manifest.json").write_text(json.dumps(dense_only))
    assert Package.load(tmp_path).dropped == frozenset()
    one = Collection([Passage("en", "a")], [Query("en", "a", (0,))])
    assert score.ndcg(one, embedded({})) == {"dense": 1.0}


def test_ndcg_is_worked_out_by_hand() -> None:
    scores = np.asarray([0.1, 0.9, 0.5])
    assert score.query_ndcg(scores, {2}) == pytest.approx(1 / math.log2(3))
    ideal = 1 + 1 / math.log2(3)
    assert score.query_ndcg(scores, {1, 0}) == pytest.approx((1 + 1 / math.log2(4)) / ideal)
    # Behind the cut nothing counts, and equal scores rank in the order of the pool.
    assert score.query_ndcg(-np.arange(20.0), {10}) == 0.0
    assert score.query_ndcg(np.ones(3), {0}) == 1.0
    assert score.query_ndcg(np.ones(20), set(range(20))) == pytest.approx(1.0)


def test_lexical_scores_sum_products_of_shared_ids() -> None:
    texts = [{5: 0.5, 7: 2.0}, {6: 1.0}, {}]
    pool = [Embedded(np.ones(1), sparse) for sparse in texts]
    query = Embedded(np.ones(1), {5: 0.5, 6: 0.25})
    assert score.sparse_scores(query, pool).tolist() == [0.25, 0.25, 0.0]


def test_a_graph_that_loses_more_than_a_hundredth_is_refused() -> None:
    def demand(sparse: float) -> None:
        exact, rounded = {"dense": 0.5, "sparse": 0.4}, {"dense": 0.5, "sparse": sparse}
        score.demand_little_loss({"collection": "c", "f32": exact, "int8": rounded}, "int8")

    demand(0.5)
    demand(0.396)
    with pytest.raises(PackageError, match="nDCG@10 of sparse vectors on c is 0.395"):
        demand(0.395)


def test_untranslated_text_is_noticed() -> None:
    english = "This is the text that nobody has translated and which stays as it is."
    assert passages.is_in_language(english, "en")
    assert not passages.is_in_language(english, "de")
    assert not passages.is_in_language("Kernel panic: not syncing", "ru")
    assert passages.is_in_language("Параметр --all показывает все файлы", "ru")
    assert passages.is_in_language("Zeigt alle Dateien in einem Verzeichnis", "de")


def test_addresses_and_reading_lists_are_no_prose() -> None:
    assert not passages.is_prose("Report bugs to <https://example.org/bugs>.")
    assert not passages.is_prose("ls(1), cp(1), mv(1)")
    assert passages.is_prose("As ls(1) does, it lists the files of a directory.")


def test_merged_passages_keep_to_the_limits() -> None:
    blocks = ["word " * count for count in (3, 40, 400, 2, 90)]
    for text in passages.merge(blocks):
        tokens = passages.token_estimate(text)
        assert passages.PASSAGE_TOKENS_MIN <= tokens <= passages.PASSAGE_TOKENS_MAX


HTML = """<html><head><title>no</title></head><body><div class="toc"><p>contents</p></div>
<h2 class="title"><a id="boiling"></a>2.1. Boiling water</h2><p>Fill the kettle.</p>
<pre>kettle -w</pre><ul><li><p>Wait.</p></li></ul>
<h3>2.1.1. The lamp</h3><p>It is blue.</p></body></html>"""


def test_guides_are_read_by_heading() -> None:
    parser = GuideParser()
    parser.feed(HTML)
    found = [(section.heading, section.blocks) for section in parser.sections]
    assert found == [
        ("Boiling water", ["Fill the kettle.", "Wait."]),
        ("The lamp", ["It is blue."]),
    ]


def test_translated_sections_are_told_by_their_places(tmp_path: Path) -> None:
    for folder, anchor in (("en", "idm7"), ("zh_CN", "idm9")):
        top = tmp_path / "usr/share/doc/installation-guide-amd64" / folder
        top.mkdir(parents=True)
        text = f'<h2><a name="{anchor}"></a>2.1. {folder}</h2><p>Text.</p><h3>Next</h3><p>X</p>'
        (top / "ch02.html").write_text(text, encoding="utf-8")
    found = read_sections(tmp_path)
    assert list(found) == ["installation-guide/ch02.html#0", "installation-guide/ch02.html#1"]
    assert {tuple(by_lang) for by_lang in found.values()} == {("en", "zh")}


def test_sentences_are_taken_out_of_the_text_that_answers_them() -> None:
    long = "It is the first sentence, which is long enough to ask. "
    rest = "The rest says " + " ".join(f"word{i}" for i in range(60)) + "."
    japanese = "これは質問として使うことができる最初の文です。残りの文です。"
    sections = {
        "a#1": {"en": GuideSection("A heading here", [long + rest])},
        "a#2": {"en": GuideSection("Another heading", ["One sentence only here."])},
        "a#3": {"ja": GuideSection("見出し", [japanese])},
    }
    taken = guide.take_sentences(sections)
    assert taken == {("a#1", "en"): long.strip(), ("a#3", "ja"): japanese[:23]}
    assert sections["a#1"]["en"].blocks == [rest]
    assert sections["a#2"]["en"].blocks == ["One sentence only here."]


def test_questions_are_asked_in_the_languages_that_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"de": "Wie man das Wasser kocht", "en": "How to boil the water", "fr": "Faire bouillir"}
    prose = {
        lang: f"{heading} {number} " * 12 for number, (lang, heading) in enumerate(own.items())
    }
    section = {lang: GuideSection(heading, [prose[lang]]) for lang, heading in own.items()}
    monkeypatch.setattr(guide, "load", lambda: {"a#1": section})
    found = make(["de", "en"])
    assert [(one.lang, one.text.strip()) for one in found.passages] == [
        (lang, prose[lang].strip()) for lang in ("de", "en")
    ]
    asked = {(one.text, one.target_lang, one.relevant) for one in found.queries}
    both = [("de", (0,)), ("en", (1,))]
    assert asked == {(own[lang], *place) for lang in ("de", "en") for place in both}
