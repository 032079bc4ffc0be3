"""How texts are taken from Debian's packages, on pages written for this test."""

from pathlib import Path

import pytest

from debian_texts import manual_pages, passages
from debian_texts.packages import Unpacked
from quantization import guide

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


def test_a_rendered_page_is_its_paragraphs_but_for_the_title() -> None:
    assert manual_pages.parse(RENDERED) == [
        "kettle [-w]",
        "Boils the water that stands in the sink.",
        "-w, --warm Keep it warm.",
        "The lamp is blue while it boils.",
    ]


@pytest.mark.parametrize("rendered", ["", "X(1)\n\nNAME\n       no dash here\n\nfoot\n"])
def test_a_page_without_a_title_line_is_left_out(rendered: str) -> None:
    assert manual_pages.parse(rendered) == []


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
    parser = guide.GuideParser()
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
    place = Unpacked("installation-guide-amd64", "", tmp_path)
    found = guide.read_sections(place)
    assert list(found) == ["installation-guide/ch02.html#0", "installation-guide/ch02.html#1"]
    assert {tuple(by_lang) for by_lang in found.values()} == {("en", "zh")}


def test_sentences_are_taken_out_of_the_text_that_answers_them() -> None:
    long = "It is the first sentence, which is long enough to ask. "
    rest = "The rest says " + " ".join(f"word{i}" for i in range(60)) + "."
    japanese = "これは質問として使うことができる最初の文です。残りの文です。"
    sections = {
        "a#1": {"en": guide.GuideSection("A heading here", [long + rest])},
        "a#2": {"en": guide.GuideSection("Another heading", ["One sentence only here."])},
        "a#3": {"ja": guide.GuideSection("見出し", [japanese])},
    }
    taken = guide.take_sentences(sections)
    assert taken == {("a#1", "en"): long.strip(), ("a#3", "ja"): japanese[:23]}
    assert sections["a#1"]["en"].blocks == [rest]
    assert sections["a#2"]["en"].blocks == ["One sentence only here."]
