"""A summary as a notebook shows it: its figures and tables, nothing that a name out of a capture could be but text."""

from html.parser import HTMLParser
from pathlib import Path

import pyprof
from pyprof.model.records import PHASES
from pyprof.report.page.colours import colours
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.division import BUSY
from pyprof.tables.names import text_of
from tests.report.page.test_page import HOSTILE, hostile
from tests.report.summary.test_summary import two_steps


class Elements(HTMLParser):
    """The names of the elements and attributes of a text, and the texts in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_a_notebook_shows_figures_advice_and_tables(tmp_path: Path) -> None:
    found = pyprof.load(two_steps().write(tmp_path / "net.sqlite"))
    text = found._repr_html_()
    assert text == found.summary()._repr_html_() == pyprof.summary(found.file)._repr_html_()
    shown = Elements(text)
    assert shown.names <= set("div p strong br table tr th td caption span ol li pre details summary".split())
    assert shown.attributes <= {"style", "title", "open"}
    texts = shown.texts
    assert [text in texts for text in ("net.sqlite", "Step", "Wall time", "200 us", "100 us")] == [True] * 5
    assert "compute 60.0 us, 30 %" in texts and "By op" in texts and "mm" in texts and "What to do first" in texts
    assert "NVIDIA A100-SXM4-80GB" in " ".join(texts) and "Most time lost against the roofline" in texts


def test_names_of_a_capture_stay_text(tmp_path: Path) -> None:
    text = pyprof.load(hostile(tmp_path / "net.sqlite"))._repr_html_()
    shown = Elements(text)
    assert not shown.names & {"script", "img"} and not {name for name in shown.attributes if name.startswith("on")}
    assert text_of(HOSTILE[0]) in shown.texts
    assert all(one.isprintable() for one in text.replace("\n", ""))


def test_a_capture_without_a_device_says_what_is_of_the_cpu(data: Path) -> None:
    texts = Elements(pyprof.load(data / "kineto_cpu.json.gz")._repr_html_()).texts
    assert "CPU busy" in texts and "Ops" in texts and "GPU busy" not in texts


def test_everything_that_is_drawn_has_a_colour() -> None:
    wanted = {*(f"ph-{name}" for name in (*PHASES, "unknown")), *(f"cause-{name}" for name in CAUSES), "layer"}
    assert wanted | {f"busy-{name}" for name in BUSY} <= colours().keys()
    assert all(len(colour) == 7 for colour in colours().values())
