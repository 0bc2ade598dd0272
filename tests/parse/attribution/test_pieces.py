"""The records of a capture do not depend on how many rows are handled at a time, nor on where its columns lie."""

from __future__ import annotations

import os
from contextlib import ExitStack
from io import BytesIO
from unittest import mock

import pytest

from pyprof.arrays import sorting, spool
from pyprof.arrays.processes import several
from pyprof.formats import op_rules
from pyprof.loading import load, open_trace
from pyprof.parse.attribution import attribute, in_slices, launches, ranges
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.records.parquet.writer import write_file
from pyprof.parse.sources import nvprof_ranges
from pyprof.parse.sources.sqlite_pages import reader
from tests.conftest import ROOT

CAPTURES = sorted([*(ROOT / "tests" / "data").glob("*.sqlite"), *(ROOT / "tests" / "data").glob("*.json.gz")])
GIVEN = [
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", "nvprof/v100_lm/net.sql",
    "kineto/a100_train_stacks.json.gz", "kineto/mi300_resnet_checkpoint.json.gz", "kineto/serving/vllm_decode_full.run.json.gz",
]  # fmt: skip


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_pieces_of_some_rows_on_the_disk(capture):
    check(capture, 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
def test_given_captures(captures, name):
    check(captures / name, 500)


def check(capture, rows):
    expected = load(str(capture))
    with ExitStack() as patches:
        patches.enter_context(mock.patch.multiple(spool, PIECE_ROWS=rows, _LEAST_BYTES=64, _MOST_MAPPED_BYTES=0))
        for module in (sorting, launches, attribute, ranges, nvprof_ranges):
            patches.enter_context(mock.patch.object(module, "PIECE_ROWS", rows))
        found = load(str(capture))
    assert [*lines(found)] == [*lines(expected)]
    assert found.messages() == expected.messages()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_several_processes(capture):
    check_processes(capture, 8)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("name", GIVEN)
def test_several_processes_of_given_captures(captures, name):
    check_processes(captures / name, 100)


def check_processes(capture, kernels):
    expected = attribute.attribute(open_trace(capture), op_rules(), kernels)
    with (
        mock.patch.object(in_slices, "_LEAST_AMONG_PROCESSES", 1),
        mock.patch.object(reader, "_LEAST_SHARED_BYTES", 1),
        spool.columns_on_disk(),
        several(3),
    ):
        found = attribute.attribute(open_trace(capture), op_rules(), kernels)
    assert [*lines(found)] == [*lines(expected)]
    assert found.messages() == expected.messages()
    assert parquet_of(found) == parquet_of(expected)


def parquet_of(records):
    write_file(records, stream := BytesIO())
    return stream.getvalue()
