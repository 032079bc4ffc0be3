"""`/playground` in a browser: what it shows, by keyboard, with API keys, on small screens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser import Watch
from server import Server, default_package, running

KEY = "a-key-of-the-tests"
BOTH = "/v1/embeddings/both"
SIZES = {"phone": (390, 844), "desktop": (1280, 900)}

# The words of a text with their shades.
MARKS = """marks => marks.map(mark =>
    [mark.textContent, Number(mark.style.getPropertyValue('--shade'))])"""

# The letters of a field and its shades must break their lines at the same places.
HEIGHTS = """fields => fields.map(field => [
    field.querySelector('.shades').scrollHeight, field.querySelector('textarea').offsetHeight])"""


@pytest.fixture(scope="module")
def server_with_key() -> Iterator[Server]:
    """A server that asks for a key."""
    with running("--engine", "fake", "--package", default_package(), "--api-key", KEY) as server:
        yield server


def open_page(page: Page, server: Server) -> None:
    """Open the page and wait for its first answer."""
    page.goto(server.url + "/playground")
    page.locator("#times td").first.wait_for()


def item(page: Page, number: int) -> Locator:
    """One of the texts, counted from one."""
    return page.locator(f"#texts > li:nth-child({number})")


def texts_of(page: Page) -> list[str]:
    """What is in the fields."""
    return [area.input_value() for area in page.locator("#texts textarea").all()]


def scores_of(page: Page) -> list[float]:
    """The scores of the ranking, in its order."""
    return [float(score) for score in page.locator("#nearest .score").all_text_contents()]


def test_words_are_shaded_where_the_answer_says(server: Server, page: Page, watch: Watch) -> None:
    """The shades are those of the weights, in every script, and repeated words have their own."""
    open_page(page, server)
    texts = texts_of(page)
    items = server.items(BOTH, input=texts, input_type="passage", offsets=True)
    for number, (text, answer) in enumerate(zip(texts, items, strict=True), 1):
        marks = item(page, number).locator(".shades mark").evaluate_all(MARKS)
        shown, done = [], 0
        for place in answer["occurrences"]:
            if place["start"] < place["end"] and place["start"] >= done:
                shown.append(place)
                done = place["end"]
        assert [mark[0] for mark in marks] == [text[p["start"] : p["end"]] for p in shown]
        # A heavier word is never lighter on the page.
        by_weight = sorted(zip(shown, marks, strict=True), key=lambda pair: pair[0]["weight"])
        shades = [mark[1] for _, mark in by_weight]
        assert shades == sorted(shades)
        assert shades[0] < shades[-1]
    assert watch.complaints == []


def test_the_page_shows_what_the_server_computes(server: Server, page: Page, watch: Watch) -> None:
    """Matrices, ranks, tokens, times and code are those of the server's own answers."""
    open_page(page, server)
    texts = texts_of(page)
    one, other = server.items(BOTH, input=texts, input_type="passage")[:2]
    dense = sum(a * b for a, b in zip(one["embedding"], other["embedding"], strict=True))
    values = [dict(zip(*answer["sparse_values"].values(), strict=True)) for answer in (one, other)]
    lexical = sum(weight * values[1].get(id, 0) for id, weight in values[0].items())
    for name, product in [("dense", dense), ("lexical", lexical)]:
        cell = page.locator(f"#{name}-matrix tbody tr:nth-child(1) td:nth-of-type(2)")
        assert float(cell.inner_text()) == pytest.approx(product, abs=0.006)

    assert sorted(page.locator("#nearest .text").all_text_contents()) == sorted(texts)
    scores = scores_of(page)
    assert scores == sorted(scores, reverse=True)

    stages = ["parse", "tokenize", "queue", "compute", "select", "serialize", "total"]
    expect(page.locator("#times th[scope=row]")).to_have_text([*stages, "round trip"])
    code = page.locator("#code")
    expect(code).to_contain_text("/v1/embeddings/both")
    expect(code).to_contain_text('"input_type": "passage"')
    page.locator("[value=python]").click()
    expect(code).to_contain_text('"input_type": "passage"')
    compile(code.text_content() or "", "shown", "exec")

    assert watch.hosts == {urlsplit(server.url).netloc}
    assert watch.complaints == []


def test_the_slider_mixes_dense_and_lexical(server: Server, page: Page) -> None:
    """At its ends it is one of the two alone; the arrow keys move it."""
    open_page(page, server)
    page.locator("#query").fill("cat sofa")
    item(page, 2).locator("textarea").fill("no such word here")
    expect(page.locator("#nearest")).to_contain_text("no such word")
    slider, formula = page.locator("#share"), page.locator("#formula")
    slider.press("End")
    expect(formula).to_have_text("score = 0.00 · dense + 1.00 · lexical")
    expect(page.locator("#nearest li:first-child .text")).to_contain_text("cat")
    assert scores_of(page)[-1] == 0
    slider.press("Home")
    expect(formula).to_have_text("score = 1.00 · dense + 0.00 · lexical")
    slider.press("ArrowRight")
    expect(formula).to_have_text("score = 0.99 · dense + 0.01 · lexical")


def test_words_shared_with_the_query_are_underlined(server: Server, page: Page) -> None:
    """By token ids, whatever stands around them."""
    open_page(page, server)
    page.locator("#query").fill("sofa")
    expect(item(page, 1).locator("mark.shared")).to_have_text(["sofa"])


def test_a_long_text_shows_where_it_is_cut(server: Server, page: Page) -> None:
    """What is not run is hatched, and the tokens are counted."""
    open_page(page, server)
    first = item(page, 1)
    first.locator("textarea").fill("word " * 600)
    expect(first.locator(".long")).to_contain_text("tokens are not run")
    assert 60 < first.locator("mark.cut").inner_text().count("word") < 120
    first.locator("summary").click()
    first.locator(".token.cut").first.wait_for()


def test_texts_are_added_and_removed_by_keys(server: Server, page: Page) -> None:
    """The focus is always somewhere useful, and Ctrl + Enter sends at once."""
    open_page(page, server)
    items = page.locator("#texts > li")
    before = items.count()
    page.locator("#add").press("Enter")
    expect(items).to_have_count(before + 1)
    expect(items.last.locator("textarea")).to_be_focused()
    page.keyboard.insert_text("a new text")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#nearest")).to_contain_text("a new text")
    items.last.locator(".facts button").press("Enter")
    expect(items).to_have_count(before)
    expect(page.locator("textarea:focus")).to_have_count(1)


def test_a_server_with_keys_asks_for_one(server_with_key: Server, page: Page) -> None:
    """The key is sent with each request, and shown in no code."""
    page.goto(server_with_key.url + "/")
    form = page.locator("#key-form")
    for key in ("wrong", KEY):
        page.locator("#key").fill(key)
        form.locator("button").click()
        if key != KEY:
            expect(page.locator("#status")).to_contain_text("not one of")
    page.locator("#texts .shades mark").first.wait_for(state="attached")
    expect(form).to_be_hidden()
    code = page.locator("#code")
    expect(code).to_contain_text("DUOVEC_API_KEY")
    expect(code).not_to_contain_text(KEY)
    # As if the server's keys had been exchanged under the open page.
    page.evaluate("state.key = 'of before'")
    item(page, 1).locator("textarea").fill("another text")
    expect(form).to_be_visible()
    page.locator("#key").fill(KEY)
    form.locator("button").click()
    expect(form).to_be_hidden()


def test_a_refusal_is_shown_in_the_servers_words(server: Server, page: Page) -> None:
    """And the next good request takes it away."""
    open_page(page, server)
    area = item(page, 1).locator("textarea")
    area.fill("x" * 1_100_000)
    expect(page.locator("#status.fault")).to_contain_text("too large")
    area.fill("short")
    expect(page.locator("#status")).to_have_text("")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_screen(
    server: Server, chromium: Browser, size: str, scheme: Any
) -> None:
    """On a phone and on a desk, light and dark, and the letters lie on their shades."""
    width, height = SIZES[size]
    page = chromium.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        is_mobile=size == "phone",
    )
    watch = Watch(page)
    open_page(page, server)
    item(page, 1).locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heights = page.locator(".field").evaluate_all(HEIGHTS)
    assert all(abs(shades - area) <= 1 for shades, area in heights), heights
    assert watch.complaints == []
    page.close()
