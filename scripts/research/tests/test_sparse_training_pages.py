"""Pages, passages and the split by name, on pages written for this test."""

from __future__ import annotations

from pathlib import Path

import pytest

from debian_texts import manual_pages, passages
from debian_texts.manual_pages import Page, Section
from sparse_training import guide_collection, guides, manual_collection

RENDERED = """KETTLE(1)                    General Commands                    KETTLE(1)

N\x08NA\x08AM\x08ME\x08E
       kettle, teapot - boil water for tea

SYNOPSIS
       kettle [-w]

DESCRIPTION
       Boils the water that stands in the
       sink.

       -w, --warm
              Keep it warm.

   Colours
       The lamp is blue while it boils.

Debian                        2024                        KETTLE(1)
"""
WORDS = [*"ABCDEFGHIJKLM"]


def test_a_rendered_page_is_taken_apart() -> None:
    page = manual_pages.parse(RENDERED, "en", "kettle")
    assert page is not None
    assert page.names == ("kettle", "teapot")
    assert page.summary == "boil water for tea"
    assert [section.heading for section in page.sections] == ["SYNOPSIS", "DESCRIPTION", "Colours"]
    assert page.sections[1].blocks == (
        "Boils the water that stands in the sink.",
        "-w, --warm Keep it warm.",
    )
    assert manual_collection.options(page) == {"--warm": "-w, --warm Keep it warm."}


@pytest.mark.parametrize("rendered", ["", "X(1)\n\nNAME\n       no dash here\n\nfoot\n"])
def test_a_page_without_a_title_line_is_left_out(rendered: str) -> None:
    assert manual_pages.parse(rendered, "en", "x") is None


def page(lang: str, stem: str, names: tuple[str, ...]) -> Page:
    """Long enough for several passages, unlike any other page."""
    blocks = tuple(
        f"-{letter}, --{stem}-{letter} " + " ".join(f"{lang}{stem}{letter}{w}" for w in WORDS)
        for letter in "abcd"
    )
    text = Section("DESCRIPTION", blocks[:2]), Section("NOTES", blocks[2:])
    synopsis = Section("SYNOPSIS", (stem,))
    return Page(lang, stem, names, f"{stem} - does {stem}", f"does {stem}", (synopsis, *text))


def sample() -> list[Page]:
    pages = [page(lang, f"tool{n}", (f"tool{n}",)) for lang in ("en", "de") for n in range(40)]
    # The German page calls itself by two names, so both English pages belong together.
    pages.append(page("de", "toolalias", ("tool3", "tool17")))
    return pages


def test_all_pages_of_a_name_are_on_one_side() -> None:
    collection = manual_collection.assemble(sample())
    splits: dict[str, set[str]] = {}
    for passage in collection.passages:
        splits.setdefault(passage.group, set()).add(passage.split)
    assert all(len(found) == 1 for found in splits.values())
    seen = {split for found in splits.values() for split in found}
    assert seen == {"train", "left out", "validation", "test"}
    groups = manual_collection.unite(sample())
    assert groups["tool3"] == groups["tool17"] == groups["toolalias"]


def test_no_text_is_in_two_splits() -> None:
    pages = sample()
    pages.append(Page("en", "copy", ("copy",), "copy - c", "c", pages[0].sections))
    collection = manual_collection.assemble(pages)
    texts = [passage.text for passage in collection.passages]
    assert len(set(texts)) == len(texts)


def test_answers_are_in_the_split_and_language_asked_for() -> None:
    collection = manual_collection.assemble(sample())
    assert {query.kind for query in collection.queries} == {"summary", "heading", "title", "option"}
    for query in collection.queries:
        assert query.relevant
        for number in query.relevant:
            passage = collection.passages[number]
            assert (passage.split, passage.lang) == (query.split, query.target_lang)
            assert passage.group == query.group


def test_a_part_renumbers_its_answers() -> None:
    collection = manual_collection.assemble(sample())
    part = collection.part("test")
    assert {query.split for query in part.queries} == {"test"}
    for query in part.queries:
        assert {part.passages[i].group for i in query.relevant} == {query.group}


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
<section id="lamp"><h3>2.1.1. The lamp<a class="headerlink" href="#lamp">#</a></h3>
<p>It is blue.</p></section></body></html>"""


def test_guides_are_read_by_heading_and_anchor() -> None:
    parser = guides.GuideParser()
    parser.feed(HTML)
    found = [(s.key, s.heading, s.blocks) for s in parser.sections]
    assert found == [
        ("boiling", "Boiling water", ["Fill the kettle.", "Wait."]),
        ("lamp", "The lamp", ["It is blue."]),
    ]


def test_guide_packages_give_languages() -> None:
    assert guides.language("debian-faq-zh-cn") == "zh"
    assert guides.language("debian-reference-pt-br") == "pt"
    assert guides.language("developers-reference") == "en"
    assert guides.language("libreoffice-help-en-us") == "en"


HELP = """<aside><p>Search</p></aside><h1 id="hd_1">Copy a cell</h1><p>Mark it. Press <span
hidden="true" class="MAC">Cmd</span><span>Ctrl</span>.</p><div class="relatedtopics"><p>More</p>
</div><footer><p>Debug</p></footer>"""


def test_help_pages_are_told_by_their_path(tmp_path: Path) -> None:
    top = tmp_path / "usr/share/libreoffice/help/de/text/scalc"
    top.mkdir(parents=True)
    (top / "copy.html").write_text(HELP, encoding="utf-8")
    (source,) = guides.sources(tmp_path, "libreoffice-help-de")
    assert (source.lang, source.page) == ("de", "libreoffice-help/scalc/copy.html")
    (section,) = guides.read(source)
    assert (section.key, section.heading) == ("hd_1", "Copy a cell")
    assert section.blocks == ["Mark it. Press Ctrl."]


def test_the_installation_guide_is_told_by_places(tmp_path: Path) -> None:
    for folder, anchor in (("en", "idm7"), ("zh_CN", "idm9")):
        top = tmp_path / "usr/share/doc/installation-guide-amd64" / folder
        top.mkdir(parents=True)
        text = f'<h2><a name="{anchor}"></a>2.1. {folder}</h2><p>Text.</p><h3>Next</h3><p>X</p>'
        (top / "ch02.html").write_text(text, encoding="utf-8")
    found = guides.sources(tmp_path, "installation-guide-amd64")
    keys = {one.lang: [section.key for section in guides.read(one)] for one in found}
    assert keys == {"en": ["0", "1"], "zh": ["0", "1"]}
    assert {one.page for one in found} == {"installation-guide/ch02.html"}


def test_sentences_are_taken_out_of_the_text_that_answers_them() -> None:
    long = "It is the first sentence, which is long enough to ask. "
    rest = "The rest says " + " ".join(f"word{i}" for i in range(60)) + "."
    japanese = "これは質問として使うことができる最初の文です。残りの文です。"
    sections = {
        "a#1": {"en": guides.GuideSection("1", "A heading here", [long + rest])},
        "a#2": {"en": guides.GuideSection("2", "Another heading", ["One sentence only here."])},
        "a#3": {"ja": guides.GuideSection("3", "見出し", [japanese])},
    }
    taken = guide_collection.take_sentences(sections)
    assert taken == {("a#1", "en"): long.strip(), ("a#3", "ja"): japanese[:23]}
    assert sections["a#1"]["en"].blocks == [rest]
    assert sections["a#2"]["en"].blocks == ["One sentence only here."]


def test_train_validation_and_test_domains_share_no_package() -> None:
    domains = [*guide_collection.DOMAINS.values(), *guide_collection.TESTS.values()]
    assert {one.split for one in domains} == {"train", "validation", "test"}
    assert all(one.split == "test" for one in guide_collection.TESTS.values())
    names = [name for one in domains for name in one.packages]
    assert len(set(names)) == len(names)
