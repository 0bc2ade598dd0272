"""The page in a real browser: charts are there, filters filter, zoom zooms, nothing leaves, nothing of a name runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyprof.cli import main
from tests.report.page.test_page import HOSTILE, hostile
from tests.report.summary.test_summary import two_steps
from tests.tiny import Nsys

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
WATCH = "document.addEventListener('securitypolicyviolation', event => console.error('policy', event.violatedDirective))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, without a sandbox since tests may run as root."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def opened(browser: Any, path: Path, **options: Any) -> Iterator[Any]:
    """The page of a file; at the end it had no error, and asked for no other thing."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page, errors, requests = context.new_page(), [], []
    page.add_init_script(WATCH)
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(error.message))
    page.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    yield page
    assert errors == [] and requests == [path.as_uri()]
    context.close()


@pytest.fixture(scope="module")
def steps_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two steps with an mm in a layer and an add."""
    folder = tmp_path_factory.mktemp("page")
    page = folder / "report.html"
    assert main(["report", str(two_steps().write(folder / "net.sqlite")), "-o", str(page)]) == 0
    return page


def soon(condition: str) -> str:
    """A promise of the condition's value, once it is true or half a minute is over. Playwright's wait_for_function evaluates text
    each time that it looks, which the page's policy forbids."""
    return f"""new Promise(done => {{
        let left = 3000;
        const look = () => ({condition}) || !left-- ? done({condition}) : setTimeout(look, 10);
        look();
    }})"""


def names(page: Any, table: str) -> list[str]:
    """The first column of a table."""
    found: list[str] = page.locator(f".table.{table} tbody tr td:first-child .pick").all_inner_texts()
    return [text.split("\n")[0] for text in found]


def test_charts_and_tables_are_there(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        assert page.locator(".roofline circle").count() == 2 and page.locator(".roofs path").count() == 3
        assert page.locator(".roofs.names text").all_text_contents() == [
            "fp32, cores 19.5 TFLOP/s",
            "DRAM 2.04 TB/s",
            "L2 7.22 TB/s",
        ]
        assert (
            page.locator(".icicle g.part.layer").count() == 1 and page.locator(".timeline .spans rect.ph-forward").count() == 4
        )
        assert page.locator(".timeline .lane").all_text_contents() == ["GPU 0, stream 7: 30 %", "GPU 0 idle: 70 %"]
        assert (
            names(page, "ops") == ["mm", "add"]
            and names(page, "layers") == ["model", "model.fc"]
            and len(names(page, "kernels")) == 2
        )


def test_a_text_filters_charts_and_tables(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        page.fill(".query", "MM fc")
        assert names(page, "ops") == ["mm"] and names(page, "kernels") == ["ampere_sgemm_128x64_nn"]
        assert page.locator(".roofline circle.pale").count() == 1 and "67 % of the time" in page.inner_text(".matched")
        page.fill(".query", "nothing at all")
        assert names(page, "ops") == [] and "No row is left" in page.inner_text(".table.ops .more")
        page.fill(".query", "")
        assert names(page, "ops") == ["mm", "add"]


def test_a_click_on_a_point_filters_and_its_chip_takes_it_back(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        page.locator('.roofline circle[aria-label^="add"]').click()
        assert names(page, "ops") == ["add"] and names(page, "layers") == []
        page.locator(".chip").click()
        assert names(page, "ops") == ["mm", "add"] and page.locator(".chip").count() == 0
        page.locator(".roofline circle").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert names(page, "ops") == ["add"] and page.evaluate("document.activeElement.tagName") == "circle"
        page.keyboard.press("Enter")
        page.locator(".table.kernels .pick").first.click()
        assert names(page, "ops") == ["mm"] and page.locator('.table.kernels tr[aria-selected="true"]').count() == 1
        page.locator(".table.layers .pick").first.click()
        page.locator(".chip", has_text="clear all").click()
        assert names(page, "ops") == ["mm", "add"] and page.locator(".chip").count() == 0


def test_the_icicle_zooms_by_mouse_and_keys(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        add = page.locator('.icicle g.part[aria-label^="add"]').first
        before = add.locator("rect").bounding_box()["width"]
        add.click()
        assert add.locator("rect").bounding_box()["width"] > 2 * before and names(page, "ops") == ["add"]
        assert page.inner_text(".way").split() == ["all", ">", "add"]
        page.keyboard.press("Escape")
        assert add.locator("rect").bounding_box()["width"] == pytest.approx(before, abs=1)
        assert names(page, "ops") == ["mm", "add"]
        page.locator(".icicle g.part").first.focus()
        page.keyboard.press("ArrowDown")
        focused = "document.activeElement.getAttribute('aria-label')"
        assert page.evaluate(focused).startswith("model > fc > mm,")
        page.keyboard.press("Enter")
        assert names(page, "ops") == ["mm"]
        page.keyboard.press("ArrowDown")
        assert page.evaluate(focused).startswith("ampere_sgemm_128x64_nn,")
        page.locator(".way button").first.click()
        assert names(page, "ops") == ["mm", "add"]


@pytest.fixture(scope="module")
def layers_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four equal layers, of which one takes longer and another adds, in the only layer of a model; and one of another kind."""
    n, folder = Nsys(), tmp_path_factory.mktemp("layers")
    n.range('model #pyprof{"layer":1}', 0, 1_000_000)
    n.range('model.layers #pyprof{"layer":1}', 10, 900_000)
    for at in range(5):
        begin = 1_000 + 100_000 * at
        n.range(f'model.layers.{at} #pyprof{{"layer":1}}', begin, begin + 90_000)
        ops = ["tanh"] if at == 4 else ["relu", "add"] if at == 2 else ["relu"]
        inner = "act" if at < 4 else "other"
        n.range(f'model.layers.{at}.{inner} #pyprof{{"layer":1}}', begin + 100, begin + 80_000)
        for number, op in enumerate(ops):
            start = begin + 1_000 + 30_000 * number
            n.range(f'{op}(fp32[8,8]) #pyprof{{"mod":"torch"}}', start, start + 20_000)
            n.kernel(f"{op}_kernel", start + 10, start + 100, start + 10_100 + 5_000 * (at == 1))
    path = folder / "report.html"
    assert main(["report", str(n.write(folder / "net.sqlite")), "-o", str(path)]) == 0
    return path


def test_equal_layers_are_folded_until_clicked(browser: Any, layers_page: Path) -> None:
    labels = "nodes => nodes.map(node => node.getAttribute('aria-label'))"
    with opened(browser, layers_page) as page:
        fold = page.locator(".icicle g.fold")
        assert page.locator(".icicle g.part").evaluate_all(labels)[0].startswith("all > model > layers, 65.0 us")
        assert fold.get_attribute("aria-label") == "4 x 0..3, 55.0 us, 85 %; 10.0 us to 20.0 us each; add in 1 of them"
        fold.hover()
        assert "longest: 2" in page.inner_text("#tip") and "add in 1 of 4" in page.inner_text("#tip")
        fold.focus()
        page.keyboard.press("Enter")
        shown = page.locator(".icicle g.part").evaluate_all(labels)
        assert [text.split(",")[0] for text in shown if text[0] in "0123"] == [
            "0 > act > relu",
            "1 > act > relu",
            "2 > act",
            "3 > act > relu",
        ]
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert "15.0 us" in page.inner_text(".matched") and names(page, "ops") == ["relu"]


def test_a_filter_marks_the_flame_graph(browser: Any, layers_page: Path) -> None:
    with opened(browser, layers_page) as page:
        page.fill(".query", "add")
        assert page.locator('.icicle g.match[aria-label^="add,"]').count() == 1
        assert page.locator('.icicle g.pale[aria-label*="relu"]').count() >= 1
        assert page.locator('.icicle g.match[aria-label^="all"]').count() == 1
        page.fill(".query", "")
        assert page.locator(".icicle g.match, .icicle g.pale").count() == 0


def test_the_timeline_zooms_by_drag_wheel_and_keys_and_names_ops(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        chart, told = page.locator(".timeline svg"), page.locator(".zooms [role=status]")
        chart.scroll_into_view_if_needed()
        page.wait_for_timeout(400)
        box = chart.bounding_box()
        assert "mm" in page.locator(".timeline .spans text").all_text_contents()
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 40)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        page.mouse.up()
        assert told.inner_text() == "50.0 us to 100 us"
        page.mouse.wheel(0, -200)
        assert told.inner_text() == "62.5 us to 87.5 us"
        chart.focus()
        for key, shown in (("-", "50.0 us to 100 us"), ("Shift+ArrowLeft", "37.5 us to 87.5 us"), ("+", "56.3 us to 81.3 us")):
            page.keyboard.press(key)
            assert told.inner_text() == shown
        page.keyboard.press("Escape")
        assert "drag" in told.inner_text()
        page.locator(".gaps .pick").first.click()
        assert page.locator(".timeline .marked").bounding_box()["width"] > 20


def test_memory_is_drawn_and_what_is_alive_is_listed_where_one_clicks(browser: Any, captures: Path, tmp_path: Path) -> None:
    snapshot, trace = captures / "memory/gpt_medium_128_training.pickle", captures / "kineto/h100_bert_small.json.gz"
    assert main(["report", str(snapshot), str(trace), "-o", str(tmp_path / "report.html")]) == 0
    with opened(browser, tmp_path / "report.html", viewport={"width": 360, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        whole = page.locator("#memory-1")
        told, chart = whole.locator(".memory [role=status]"), whole.locator(".memory svg").first
        assert "At the peak, 105 ms, step 0, in the optimizer: 6,688.4 MiB requested" in told.inner_text()
        row = whole.locator(".memory tbody tr").nth(1)
        assert row.locator("td").first.inner_text() == "gradients" and "1,575.1 MiB" in row.inner_text()
        box = chart.bounding_box()
        chart.click(position={"x": 77 + 0.2 * (box["width"] - 81), "y": 100})
        assert "in forward" in told.inner_text() and "activations" in whole.locator(".memory tbody").inner_text()
        chart.focus()
        page.keyboard.press("Home")
        assert told.inner_text().startswith("At the peak")
        page.keyboard.press("ArrowLeft")
        assert told.inner_text().startswith("At 1") and chart.locator("path.held").count() >= 4
        whole.locator(".tool", has_text="by phase").press("Enter")
        assert whole.locator(".memory .keys").inner_text().split("\n")[:2] == ["not known", "optimizer"]
        traced = page.locator("#capture-1 .memory")
        assert "96.6 MiB allocated, 116.0 MiB reserved" in traced.locator("[role=status]").last.inner_text()
        assert traced.locator("tbody tr").count() >= 2


BOXES = """nodes => nodes.map(node => { const {x, y, width, height} = node.getBoundingClientRect(); return [x, y, width, height] })"""
CONTROLS = "button, input, summary, a, [tabindex='0']"


def given_page(folder: Path, captures: Path) -> Path:
    """Of a vision transformer with recorded memory."""
    path = folder / "report.html"
    assert main(["report", str(captures / "kineto/h100_vit.json.gz"), "-o", str(path)]) == 0
    return path


def test_code_can_be_copied_and_every_control_is_reached_by_tab(browser: Any, captures: Path, tmp_path: Path) -> None:
    with opened(browser, given_page(tmp_path, captures)) as page:
        button = page.locator(".code .copy").first
        assert "(" in page.locator(".code code").first.inner_text()
        button.focus()
        said = soon("node.textContent !== 'Copy' && node.textContent")
        button.evaluate(f"node => {{ window.said = {said} }}")
        page.keyboard.press("Enter")
        assert page.evaluate("said") in ("Copied", "Selected: press Ctrl+C")
        page.evaluate(
            "document.activeElement.blur(); window.reached = new Set(); document.addEventListener('focusin', event => reached.add(event.target))"
        )
        count = page.locator(CONTROLS).count()
        for _ in range(count + 5):
            page.keyboard.press("Tab")
        missed = f'[...document.querySelectorAll("{CONTROLS}")].filter(one => one.checkVisibility() && !reached.has(one)).map(one => one.outerHTML)'
        assert page.evaluate(missed) == []


def test_the_roofline_is_about_what_takes_time_and_its_names_do_not_meet(browser: Any, captures: Path, tmp_path: Path) -> None:
    with opened(browser, given_page(tmp_path, captures)) as page:
        assert "outside of the axes" in page.inner_text(".roofnotes")
        boxes = page.locator(".roofline .labels text").evaluate_all(BOXES)
        assert len(boxes) >= 6
        for at, (x, y, wide, high) in enumerate(boxes):
            for x2, y2, wide2, high2 in boxes[:at]:
                assert x >= x2 + wide2 or x2 >= x + wide or y + 2 >= y2 + high2 or y2 + 2 >= y + high


def test_headers_sort_and_unknown_comes_last(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        page.locator(".table.ops thead button", has_text="Time").click()
        assert names(page, "ops") == ["add", "mm"]
        assert page.locator('.table.ops th[aria-sort="ascending"]').count() == 1
        page.locator(".table.ops thead button", has_text="Op").first.click()
        assert names(page, "ops") == ["add", "mm"]


def test_the_tip_tells_everything_of_a_point_and_of_a_moment(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        page.locator('.roofline circle[aria-label^="mm"]').hover()
        text = page.inner_text("#tip")
        assert "model.fc" in text and "537 MFLOP" in text and "13.4 TFLOP/s" in text and "Tensor Cores" in text
        page.locator(".timeline svg").focus()
        page.keyboard.press("PageDown")
        assert "GPU 0" in page.inner_text("#tip") and "step" in page.inner_text("#tip")


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    capture, path = hostile(tmp_path / "{{7*7}}<b>.sqlite"), tmp_path / "report.html"
    assert main(["report", str(capture), "-o", str(path)]) == 0
    with opened(browser, path) as page:
        assert page.inner_text("h1") == capture.name and page.title() == f"{capture.name} - pyprof"
        assert page.locator("img, b, iframe, article script").count() == 0
        shown = page.locator(".table.kernels td:first-child").all_inner_texts()
        assert any(HOSTILE[0] in text for text in shown) and any("{{7*7}}" in text for text in shown)
        for part in page.locator(".icicle g.part").all():
            part.dispatch_event("mousemove")
        assert "49" not in page.inner_text(".table.kernels td:first-child")


def test_the_policy_lets_nothing_else_run_or_load(browser: Any, steps_page: Path) -> None:
    """What a name would do, if one became markup after all."""
    context = browser.new_context()
    page, loaded = context.new_page(), []
    page.goto(steps_page.as_uri())
    page.on("requestfinished", lambda request: loaded.append(request.url))
    added = """ran = [];
        document.addEventListener('securitypolicyviolation', event => ran.push(event.effectiveDirective));
        const script = document.createElement('script'); script.textContent = 'ran.push("script")'; document.body.append(script);
        const image = document.createElement('div'); image.innerHTML = '<img src=https://example.org/x onerror=ran.push(1)>';
        document.body.append(image); image.style.color = 'red';
        fetch('https://example.org').catch(() => 0)"""
    page.evaluate(added)
    assert page.evaluate(soon("ran.length >= 3"))
    assert {*page.evaluate("ran")} <= {"script-src-elem", "script-src-attr", "img-src", "connect-src"} and loaded == []
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (3840, "dark")])
def test_nothing_is_cut_on_small_and_large_screens(browser: Any, steps_page: Path, width: int, scheme: str) -> None:
    with opened(browser, steps_page, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
        assert page.locator(".roofline svg").bounding_box()["width"] <= width


def test_it_prints(browser: Any, steps_page: Path) -> None:
    with opened(browser, steps_page) as page:
        page.emulate_media(media="print")
        assert not page.locator(".filters").is_visible() and page.locator(".roofline svg").is_visible()
        assert page.pdf()[:4] == b"%PDF"


def test_two_captures_have_a_section_each(browser: Any, tmp_path: Path) -> None:
    files = [two_steps().write(tmp_path / f"{name}.sqlite") for name in ("one", "other")]
    assert main(["report", *map(str, files), "-o", str(tmp_path / "report.html")]) == 0
    with opened(browser, tmp_path / "report.html") as page:
        assert page.locator("article[data-section] .roofline circle").count() == 4
        page.locator("#capture-2 .query").fill("add")
        assert (
            page.locator("#capture-1 .table.ops tbody tr").count() == 2
            and page.locator("#capture-2 .table.ops tbody tr").count() == 1
        )
        assert page.locator("#comparison h2").all_inner_texts() == ["one.sqlite \u2192 other.sqlite"]
        assert page.inner_text("#comparison .lede") == "A step takes 100 us, before 100 us: the same."
        assert page.locator("#comparison .bars tr").count() == 2 and not page.locator("#comparison .beside").is_visible()


def test_the_measured_roofline_is_drawn_by_the_same_chart(browser: Any, tmp_path: Path, captures: Path) -> None:
    files = [str(captures / f"ncu/rtx5090_details/00{number:02}.metrics.csv") for number in (3, 5, 9)]
    path = tmp_path / "measured.html"
    assert main(["counters", *files, "--gpu", "RTX 5090", "--roofline", str(path)]) == 0
    with opened(browser, path) as page:
        assert page.locator(".roofline circle").count() == 3 == page.locator(".table.measured tbody tr").count()
        assert page.locator(".roofs.names text").all_text_contents()[-1] == "DRAM 1.79 TB/s"
        page.locator('.roofline circle[aria-label^="fmha"]').click()
        assert page.locator(".table.measured tbody tr").count() == 1 and page.locator(".roofline circle.pale").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_long_page_begins_closed_and_links_open_it(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        two_steps().write(folder / f"rank{rank}.sqlite")
    assert main(["report", str(folder), "-o", str(tmp_path / "report.html")]) == 0
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.on("console", lambda message: errors.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#capture-1 .roofline circle").count() == 2 and page.locator("#capture-2 .roofline circle").count() == 0
    page.locator('nav a[href="#capture-2"]').click()
    page.wait_for_selector("#capture-2 .roofline circle")
    assert page.locator("#capture-2 .roofline circle").count() == 2 and errors == []
    assert page.locator("#job-1 .bars tr").count() == 3
    context.close()
