"""A recorder in place of NVTX, and a check after every test that torch is what it was."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from nvtx_recording import Recorder, differences, snapshot  # noqa: E402

from pyprof import nvtx as instrumenter  # noqa: E402
from pyprof.nvtx.state import STATE  # noqa: E402


@pytest.fixture(autouse=True)
def torch_restored() -> Iterator[None]:
    """After each test: nothing recorded any more, and every attribute of torch the same object as before."""
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    install_generation_tagging_init()
    STATE.local.__dict__.pop("steps", None)  # other tests of this process counted too
    before = snapshot()
    yield
    instrumenter.shutdown()
    assert not instrumenter.enabled()
    assert differences(before, snapshot()) == []
    assert STATE.errors == 0, STATE.last_error


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """torch instrumented for the test; every range must be closed and readable at its end."""
    found = Recorder()
    instrumenter.init(backend=found)
    yield found
    instrumenter.pause()
    assert found.open == 0
    assert found.markers is not None
    assert instrumenter.stats().errors == 0, instrumenter.stats()
