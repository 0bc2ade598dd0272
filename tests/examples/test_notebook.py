"""The example notebook runs from its first cell to its last, and shows a summary, three figures and what changed."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "pyprof" / "examples" / "notebook.ipynb"
FIGURE, HTML = "application/vnd.plotly.v1+json", "text/html"
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def notebook() -> Any:
    """As it is kept: without results, so that none is older than the program."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install nbformat")
    found = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(found)
    assert not any(cell.outputs or cell.execution_count for cell in found.cells if cell.cell_type == "code")
    return found


def test_it_runs_and_shows_what_it_says(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install ipykernel")
    pytest.importorskip("plotly", reason="needs plotly: pip install -e '.[notebook]'")
    client = pytest.importorskip("nbclient", reason="needs nbclient: pip install nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = client.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output.data for cell in done.cells if cell.cell_type == "code" for output in cell.outputs if "data" in output]
    summary, figures, diff = shown[0], [data[FIGURE] for data in shown if FIGURE in data], shown[-2]
    assert "What to do first" in summary[HTML] and "CPU busy" in summary[HTML] and "written_out.json.gz" in summary[HTML]
    assert "By op" in summary["text/plain"] and "\x1b" not in summary["text/plain"]
    assert [{trace["type"] for trace in figure["data"]} for figure in figures] == [{"scatter"}, {"icicle"}, {"bar", "scatter"}]
    # Which ops the summary of changes names, and which of many rows pandas shows, depends on how busy the machine is.
    assert "written_out.json.gz" in diff[HTML] and "comparable" in diff[HTML] and "\x1b" not in diff["text/plain"]
    assert all(f"<th>{name}</th>" in shown[-1][HTML] for name in ("op", "layer", "before", "after", "change", "what"))
