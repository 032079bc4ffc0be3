"""`/docs` in a browser: it shows the routes, tries them, and asks no other host for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import browser
from server import Server, default_package, running

ROUTES = [
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/sparse-embeddings"),
    ("POST", "/v1/embeddings:both"),
    ("POST", "/v1/tokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{id}"),
    ("GET", "/v1/health/live"),
    ("GET", "/v1/health/ready"),
    ("GET", "/v1/metadata"),
    ("POST", "/embed"),
    ("POST", "/embed_sparse"),
    ("POST", "/similarity"),
    ("POST", "/tokenize"),
    ("POST", "/decode"),
    ("GET", "/info"),
    ("GET", "/ping"),
    ("GET", "/health"),
    ("GET", "/health/deep"),
    ("GET", "/health/live"),
    ("GET", "/metrics"),
]

ROWS = "[...document.querySelectorAll('.opblock-summary')]"
TEXTS = f"""{ROWS}.map(row => [row.querySelector('.opblock-summary-method').textContent,
    row.querySelector('[data-path]').dataset.path])"""

EMBED = "#operations-embeddings-embed"


@pytest.fixture(scope="module")
def fake_server() -> Iterator[Server]:
    """The page needs no model."""
    with running("--engine", "fake", "--package", default_package()) as server:
        yield server


def test_the_page_shows_and_tries_the_routes(fake_server: Server, page: browser.Page) -> None:
    """Swagger UI lists every route, and its button sends the example."""
    page.call("Page.navigate", url=fake_server.url + "/docs")
    page.wait_for(f"{ROWS}.length >= {len(ROUTES)}")
    assert sorted(map(tuple, page.run(TEXTS))) == sorted(ROUTES)
    assert page.run("document.title") == "duovec"
    page.keep("docs")

    page.run(f"document.querySelector('{EMBED} .opblock-summary-control').click()")
    # A click on the button counts from the moment the example is in its place.
    page.wait_for(f"document.querySelector('{EMBED} textarea')?.value.includes('input')")
    page.run(f"document.querySelector('{EMBED} .execute').click()")
    answer = ".live-responses-table .response"
    status = f"document.querySelector('{answer} .response-col_status')?.textContent"
    assert page.wait_for(status).startswith("200")
    text = page.wait_for(f"document.querySelector('{answer} .highlight-code code')?.textContent")
    assert json.loads(text)["object"] == "list"
    page.keep("docs-tried")

    hosts = {urlsplit(url).netloc for url in page.requested() if not url.startswith("data:")}
    assert hosts == {urlsplit(fake_server.url).netloc}
    assert page.complaints() == []


def test_the_policy_keeps_other_hosts_out(fake_server: Server, page: browser.Page) -> None:
    """What a foreign script in the page would try is refused by the browser."""
    page.call("Page.navigate", url=fake_server.url + "/docs")
    page.wait_for(f"{ROWS}.length > 0")
    page.run("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2:9/a.png'}))")
    page.run("void fetch('http://127.0.0.2:9/').catch(() => { window.refused = true; })")
    page.wait_for("window.refused")
    complaints = [text for text in page.complaints() if "Content Security Policy" in text]
    assert len(complaints) >= 2, page.complaints()
