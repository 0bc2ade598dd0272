"""Kernels of a window that multiply matrices -> their operands' precision, and the least time that they need in another one.

What the kinds of advice about products share; it advises nothing itself.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import operand_tag
from pyprof.prof.roofline import LEAST_KERNEL_NS
from pyprof.report.overview import Overview

HALVES = ("bf16", "fp16")
_TILE = re.compile(r"gemm_(\d+)x(\d+)")
_NO_TILE = (np.nan, np.nan)
# How many times as fast as fp32 half types are at least, on any device of this major compute capability.
_FASTER = {7: 4.0, 8: 2.0, 9: 8.0, 10: 8.0, 12: 2.0}


class Products:
    """The products of an overview's window: one entry a kernel, in the order of the records.

    rows: their records; held_ns: the time in which each holds its device; precision: of its operands (`fp32`, `tf32`, `bf16`,
    `c64`), as its name says or else its op, '' unknown; math: what it computed in; used: whether on Tensor Cores; off: whether
    not, although the device has them for it.
    """

    def __init__(self, overview: Overview) -> None:
        self._frame, self._records = overview.frame, overview.records
        costs, records = self._frame.costs, self._records
        product = np.array([kernel.is_product for kernel in costs.kernels] + [False], np.bool_)[costs.kernel]
        self.rows: Ints = np.flatnonzero(product & overview.inside & (records["kind"] == ActivityKind.KERNEL))
        self.held_ns: Ints = overview.division.held_ns[self.rows]
        codes, verdicts = self._frame.verdicts
        code = codes[self.rows]
        self.math = np.array([verdict.math for verdict in verdicts] + [""], np.str_)[code]
        self.used, self.off = (np.array([verdict.tc == tc for verdict in verdicts] + [False], np.bool_)[code] for tc in "10")
        self.flops, self.bytes = costs.matmul_flops[self.rows], costs.bytes[self.rows]

    @cached_property
    def precision(self) -> npt.NDArray[np.str_]:
        costs, records = self._frame.costs, self._records
        distinct, _, inverse = distinct_rows(costs.kernel[self.rows], records["call"][self.rows])
        found = []
        for kernel, call in distinct.T.tolist():
            tag = operand_tag(records.calls[call]) or "" if call >= 0 else ""
            complex_ = tag.startswith("c")  # its real parts are what the kernel's name tells
            found.append(tag if complex_ else costs.kernels[kernel].precision or tag)
        return np.array([*found, ""], np.str_)[inverse]

    def of_kernel(self, attribute: str, unknown: str | int = "") -> npt.NDArray[Any]:
        """An attribute of each one's class of kernel, `unknown` where that is None."""
        found = [getattr(kernel, attribute) for kernel in self._frame.costs.kernels]
        pool = np.array([unknown if value is None else value for value in (*found, None)])
        return pool[self._frame.costs.kernel[self.rows]]

    def peak(self, precision: str) -> Floats:
        """The device's dense peak in FLOP/s, NaN unknown or without."""
        return self._of_device([gpu.peaks.get(precision) for gpu, _ in self._frame.gpus])

    @cached_property
    def major(self) -> Ints:
        """The greatest major compute capability in the names of the kernels of each one's device, 0 without any."""
        costs, records = self._frame.costs, self._records
        named = np.array([kernel.min_cc[0] if kernel.min_cc else 0 for kernel in costs.kernels] + [0], np.int64)[costs.kernel]
        (_,), _, device = distinct_rows(records["gpu"])
        most = np.zeros(int(device.max(initial=0)) + 1, np.int64)
        np.maximum.at(most, device, named)
        return most[device[self.rows]]

    @property
    def least_faster(self) -> Floats:
        """How many times as fast as fp32 half types are at least on a device of which only the names of its kernels tell."""
        major = self.major
        return np.array([_FASTER.get(one, np.nan) for one in range(int(major.max(initial=0)) + 1)], np.float64)[major]

    @property
    def own_peak(self) -> Floats:
        """The dense peak of each one's own precision, on Tensor Cores where they have it."""
        result = np.full(len(self.rows), np.nan)
        for precision in distinct_values(self.precision).tolist():
            mine = self.precision == precision
            result[mine] = self.peak(precision)[mine]
        return result

    @property
    def dram(self) -> Floats:
        """The device's bandwidth in bytes/s, NaN unknown."""
        return self._of_device([gpu.dram_bytes_per_s for gpu, _ in self._frame.gpus])

    @property
    def amd(self) -> Bools:
        """Whether the device is one of AMD."""
        return self._of_device([float(gpu.amd) for gpu, _ in self._frame.gpus]) > 0

    def _of_device(self, values: list[float | None]) -> Floats:
        known = np.array([np.nan if value is None else value for value in values] + [np.nan], np.float64)
        gpu = self._records["gpu"][self.rows]
        return known[np.zeros_like(gpu) if self._frame.given is not None else gpu]

    @property
    def reuse(self) -> Floats:
        """FLOPs of a product for each element that it reads, at most: of the tile in its name and its grid; NaN unknown."""
        name, records = self._frame.of_name(str), self._records
        tiles = np.array([_tile(text) for text in name.pool] + [_NO_TILE])[name.codes[self.rows]]
        tiles[self.of_kernel("kind") != "gemm"] = np.nan  # a convolution reads each element for several rows
        m, n = (tiles[:, at] * records[f"grid_{axis}"][self.rows] for at, axis in enumerate("xy"))
        return np.asarray(2 * m * n / (m + n))

    @property
    def shaped(self) -> Bools:
        """Whether FLOPs and bytes are known."""
        known: Bools = (self.flops > 0) & (self.bytes >= 0) & ~np.isnan(self.dram)
        return known

    def least_ns(self, peak: Floats, share: float = 1.0) -> Floats:
        """The least time at a peak, each moving this share of its bytes; NaN where that is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            roof = np.maximum(self.flops / peak, share * self.bytes / self.dram) * 1e9
        return np.where(self.shaped, np.maximum(roof, LEAST_KERNEL_NS), np.nan)


def _tile(name: str) -> tuple[float, float]:
    """Rows and columns of a product that one block of its kernel makes."""
    match = _TILE.search(name)
    return (float(match[1]), float(match[2])) if match else _NO_TILE
