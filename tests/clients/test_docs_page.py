"""`/docs` in a browser: it shows the routes, tries them, and asks no other host for anything."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Page, expect

from browser import Watch
from server import Server


def test_the_page_shows_and_tries_the_routes(fake: Server, page: Page, watch: Watch) -> None:
    """Swagger UI lists every route, and its button sends the example."""
    described = httpx.get(fake.url + "/openapi.json").json()["paths"]
    routes = [
        f"{method.upper()} {path}" for path, methods in described.items() for method in methods
    ]
    page.goto(fake.url + "/docs")
    rows = page.locator(".opblock-summary")
    expect(rows).to_have_count(len(routes))
    methods = rows.locator(".opblock-summary-method").all_text_contents()
    paths = [row.get_attribute("data-path") for row in rows.locator("[data-path]").all()]
    shown = [f"{method} {path}" for method, path in zip(methods, paths, strict=True)]
    assert sorted(shown) == sorted(routes)
    expect(page).to_have_title("duovec")

    embed = page.locator("#operations-embeddings-embed")
    embed.locator(".opblock-summary-control").click()
    # A click on the button counts from the moment the example is in its place.
    expect(embed.locator("textarea")).to_have_value(re.compile("input"))
    embed.locator(".execute").click()
    answer = embed.locator(".live-responses-table .response")
    expect(answer.locator(".response-col_status")).to_contain_text("200")
    text = answer.locator(".highlight-code code").first.text_content()
    assert json.loads(text or "")["object"] == "list"
    assert watch.hosts == {urlsplit(fake.url).netloc}
    assert watch.complaints == []
