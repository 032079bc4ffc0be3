"""`/playground` in a browser: what it shows, by keyboard, with API keys, on small screens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

import browser
from server import Server, default_package, running

KEY = "a-key-of-the-tests"
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}

SHADED = "document.querySelectorAll('#texts .shades mark').length"
# The words of a text with their shades, and which are underlined.
MARKS = """[...document.querySelectorAll('#texts li:nth-child(%d) .shades mark')].map(mark =>
    [mark.textContent, Number(mark.style.getPropertyValue('--shade')), mark.className])"""

# The letters of a field and its shades must break their lines at the same places.
HEIGHTS = """[...document.querySelectorAll('.field')].map(field => [
    field.querySelector('.shades').scrollHeight, field.querySelector('textarea').offsetHeight])"""


@pytest.fixture(scope="module")
def server_with_key() -> Iterator[Server]:
    """A server that asks for a key."""
    with running("--engine", "fake", "--package", default_package(), "--api-key", KEY) as server:
        yield server


@pytest.fixture
def page(page: browser.Page) -> browser.Page:
    """The same tab, as large as on a desktop."""
    page.call("Emulation.setDeviceMetricsOverride", **DESKTOP)
    return page


def open_page(page: browser.Page, server: Server, path: str = "/playground") -> None:
    """Open the page and wait for its first answer."""
    page.call("Page.navigate", url=server.url + path)
    page.wait_for("document.querySelectorAll('#times td').length")


def write(page: browser.Page, selector: str, text: str) -> None:
    """Put a text in place of what a field has, as a person does."""
    page.run(f"document.querySelector({json.dumps(selector)}).select()")
    page.call("Input.insertText", text=text)


def press(page: browser.Page, key: str, code: int, modifiers: int = 0) -> None:
    """Press and release a key."""
    about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
    if key == "Enter" and not modifiers:
        about["text"] = "\r"
    page.call("Input.dispatchKeyEvent", type="keyDown", **about)
    page.call("Input.dispatchKeyEvent", type="keyUp", **about)


def text_of(page: browser.Page, selector: str) -> str:
    """What an element says."""
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent")


def test_words_are_shaded_where_the_answer_says(server: Server, page: browser.Page) -> None:
    """The shades are those of the weights, in every script, and repeated words have their own."""
    open_page(page, server)
    texts = page.run("[...document.querySelectorAll('#texts textarea')].map(area => area.value)")
    body = {"input": texts, "offsets": True}
    items = httpx.post(server.url + "/v1/embeddings/both", json=body).raise_for_status().json()
    for index, (text, item) in enumerate(zip(texts, items["data"], strict=True)):
        marks = page.run(MARKS % (index + 1))
        shown, done = [], 0
        for place in item["occurrences"]:
            if place["start"] < place["end"] and place["start"] >= done:
                shown.append(place)
                done = place["end"]
        assert [mark[0] for mark in marks] == [text[p["start"] : p["end"]] for p in shown]
        # A heavier word is never lighter on the page.
        by_weight = sorted(zip(shown, marks, strict=True), key=lambda pair: pair[0]["weight"])
        shades = [mark[1] for _, mark in by_weight]
        assert shades == sorted(shades)
        assert shades[0] < shades[-1]
    assert page.complaints() == []


def test_the_page_shows_what_the_server_computes(server: Server, page: browser.Page) -> None:
    """Matrices, ranks, tokens, times and code are those of the server's own answers."""
    open_page(page, server)
    texts = page.run("[...document.querySelectorAll('#texts textarea')].map(area => area.value)")
    body = {"input": texts}
    items = httpx.post(server.url + "/v1/embeddings/both", json=body).raise_for_status().json()
    one, other = (items["data"][place] for place in (0, 1))
    dense = sum(a * b for a, b in zip(one["embedding"], other["embedding"], strict=True))
    values = [dict(zip(*item["sparse_values"].values(), strict=True)) for item in (one, other)]
    lexical = sum(weight * values[1].get(id, 0) for id, weight in values[0].items())
    cell = "#%s-matrix tbody tr:nth-child(1) td:nth-of-type(2)"
    assert float(text_of(page, cell % "dense")) == pytest.approx(dense, abs=0.006)
    assert float(text_of(page, cell % "lexical")) == pytest.approx(lexical, abs=0.006)

    nearest = "[...document.querySelectorAll('#nearest .text')].map(text => text.textContent)"
    assert sorted(page.run(nearest)) == sorted(texts)
    scores = page.run(
        "[...document.querySelectorAll('#nearest .score')].map(s => Number(s.textContent))"
    )
    assert scores == sorted(scores, reverse=True)

    stages = "[...document.querySelectorAll('#times th[scope=row]')].map(h => h.textContent)"
    expected = ["parse", "tokenize", "queue", "compute", "select", "serialize", "total"]
    assert page.run(stages) == [*expected, "round trip"]
    assert "/v1/embeddings/both" in text_of(page, "#code")
    page.run("document.querySelector('[value=python]').click()")
    compile(text_of(page, "#code"), "shown", "exec")

    hosts = {urlsplit(url).netloc for url in page.requested() if not url.startswith("data:")}
    assert hosts == {urlsplit(server.url).netloc}
    assert page.complaints() == []


def test_the_slider_mixes_dense_and_lexical(server: Server, page: browser.Page) -> None:
    """At its ends it is one of the two alone; the arrow keys move it."""
    open_page(page, server)
    write(page, "#query", "cat sofa")
    write(page, "#texts li:nth-child(2) textarea", "no such word here")
    page.wait_for("document.querySelector('#nearest')?.textContent.includes('no such word')")
    page.run("document.querySelector('#share').focus()")
    press(page, "End", 35)
    assert text_of(page, "#formula") == "score = 0.00 · dense + 1.00 · lexical"
    assert "cat" in text_of(page, "#nearest li:first-child .text")
    last = page.run("[...document.querySelectorAll('#nearest .score')].at(-1).textContent")
    assert float(last) == 0
    press(page, "Home", 36)
    assert text_of(page, "#formula") == "score = 1.00 · dense + 0.00 · lexical"
    press(page, "ArrowRight", 39)
    assert text_of(page, "#formula") == "score = 0.99 · dense + 0.01 · lexical"


def test_words_shared_with_the_query_are_underlined(server: Server, page: browser.Page) -> None:
    """By token ids, whatever stands around them."""
    open_page(page, server)
    write(page, "#query", "sofa")
    shared = "[...document.querySelectorAll('#texts li:nth-child(1) mark.shared')]"
    page.wait_for(f"{shared}.length === 1 && {shared}[0].textContent === 'sofa'")


def test_a_long_text_shows_where_it_is_cut(server: Server, page: browser.Page) -> None:
    """What is not run is hatched, and the tokens are counted."""
    open_page(page, server)
    write(page, "#texts li:nth-child(1) textarea", "word " * 600)
    page.wait_for("document.querySelector('#texts li:nth-child(1) .long').textContent")
    assert "tokens are not run" in text_of(page, "#texts li:nth-child(1) .long")
    cut = text_of(page, "#texts li:nth-child(1) mark.cut")
    assert 60 < cut.count("word") < 120
    page.run("document.querySelector('#texts li:nth-child(1) summary').click()")
    page.wait_for("document.querySelectorAll('#texts li:nth-child(1) .token.cut').length > 0")


def test_texts_are_added_and_removed_by_keys(server: Server, page: browser.Page) -> None:
    """The focus is always somewhere useful, and Ctrl + Enter sends at once."""
    open_page(page, server)
    count = "document.querySelectorAll('#texts > li').length"
    before = page.run(count)
    page.run("document.querySelector('#add').focus()")
    press(page, "Enter", 13)
    page.wait_for(f"{count} === {before + 1}")
    assert page.run("document.activeElement.tagName") == "TEXTAREA"
    page.call("Input.insertText", text="a new text")
    press(page, "Enter", 13, modifiers=2)
    page.wait_for("document.querySelector('#nearest').textContent.includes('a new text')")
    page.run("document.querySelector('#texts > li:last-child .facts button').click()")
    page.wait_for(f"{count} === {before}")
    assert page.run("document.activeElement.tagName") == "TEXTAREA"


def test_a_server_with_keys_asks_for_one(server_with_key: Server, page: browser.Page) -> None:
    """The key is sent with each request, and shown in no code."""
    page.call("Page.navigate", url=server_with_key.url + "/")
    page.wait_for("document.querySelector('#key-form')?.hidden === false")
    write(page, "#key", "wrong")
    page.run("document.querySelector('#key-form button').click()")
    page.wait_for("document.querySelector('#status').textContent.includes('not one of')")
    write(page, "#key", KEY)
    page.run("document.querySelector('#key-form button').click()")
    page.wait_for(SHADED)
    assert page.run("document.querySelector('#key-form').hidden")
    assert KEY not in text_of(page, "#code") and "DUOVEC_API_KEY" in text_of(page, "#code")


def test_a_refusal_is_shown_in_the_servers_words(server: Server, page: browser.Page) -> None:
    """And the next good request takes it away."""
    open_page(page, server)
    write(page, "#texts li:nth-child(1) textarea", "x" * 1_100_000)
    page.wait_for("document.querySelector('#status.fault')?.textContent.includes('too large')")
    write(page, "#texts li:nth-child(1) textarea", "short")
    page.wait_for("document.querySelector('#status').textContent === ''")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "desktop"])
def test_nothing_is_wider_than_the_screen(
    server: Server, page: browser.Page, size: str, scheme: str
) -> None:
    """On a phone and on a desk, light and dark, and the letters lie on their shades."""
    metrics = PHONE if size == "phone" else DESKTOP
    page.call("Emulation.setDeviceMetricsOverride", **metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=features)
    open_page(page, server)
    page.wait_for(SHADED)
    page.run("document.querySelector('#texts li:nth-child(1) summary').click()")
    page.keep(f"playground-{size}-{scheme}")
    assert page.run("document.documentElement.scrollWidth") <= metrics["width"]
    heights = page.run(HEIGHTS)
    assert all(abs(shades - area) <= 1 for shades, area in heights), heights
    assert page.complaints() == []
