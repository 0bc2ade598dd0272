"""Objects by their class, found while other threads make tuples."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import torch

from pyprof.recording.objects import instances, with_subclasses


def test_they_are_those_that_the_collector_knows() -> None:
    net = torch.nn.TransformerEncoderLayer(8, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(2, 3, 8)).sum().backward()
    optimizer.step()
    for base in (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer):
        found = instances(with_subclasses(base))
        assert {*map(id, found)} == {id(one) for one in gc.get_objects() if issubclass(type(one), base)}
        assert len(found) == len({*map(id, found)})
    assert net.self_attn in instances([torch.nn.MultiheadAttention]) and instances([]) == []


def test_a_tuple_that_another_thread_makes_is_not_held() -> None:
    """Under gc.get_objects() each of them fails: Python raises SystemError where a tuple cannot grow."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            instances([torch.Tensor])

    def slowly() -> Iterator[int]:
        for number in range(12):
            time.sleep(0)
            yield number

    watching = threading.Thread(target=look)
    watching.start()
    try:
        for _ in range(3):
            assert tuple(slowly()) == (*range(12),)
    finally:
        ended.set()
        watching.join()
