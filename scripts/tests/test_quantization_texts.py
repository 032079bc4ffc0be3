"""How texts are taken from Debian's installation guide, on pages written for this test."""

from pathlib import Path

from debian_texts import passages
from debian_texts.guide import GuideParser, GuideSection, read_sections
from quantization import guide


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
