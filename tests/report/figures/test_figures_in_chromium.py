"""Figures in a real browser: names out of a capture are shown as they are, no link, no element, nothing runs."""

from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.tables.names import text_of
from tests.report.page.test_page_in_chromium import browser  # noqa: F401  # a fixture
from tests.tiny import Nsys

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
NAMES = (
    "</script><img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "<b>bold</b>",
    "a&lt;b",
    "$x^2$",
    "%{x}",
)


def test_names_are_drawn_as_text(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    n = Nsys()
    for at, name in enumerate(NAMES):
        n.range(f'{name} #pyprof{{"layer":1}}', 1_000 + 1_000 * at, 1_900 + 1_000 * at)
        n.kernel("k", 1_020 + 1_000 * at, 1_100 + 1_000 * at, 1_700 + 1_000 * at)
    figure = pyprof.load(n.write(tmp_path / "net.sqlite")).plot_layers()
    path = tmp_path / "figure.html"
    path.write_text(figure.to_html(include_plotlyjs=True), encoding="utf-8")
    page, trouble = browser.new_page(viewport={"width": 1600, "height": 500}), []
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("g.slicetext")
    texts = page.locator("g.slicetext").all_text_contents()
    assert all(any(text.startswith(text_of(name)) for text in texts) for name in NAMES), texts
    assert page.locator("svg a").count() == 0 and page.locator("svg img").count() == 0 and trouble == []
    page.close()
