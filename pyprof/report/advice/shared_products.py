"""Kernels of a window that multiply matrices -> their operands' precision, and the least time that they need in another one.

Shared by the kinds of advice about matrix products; it gives no advice itself.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import operand_tag
from pyprof.prof.roofline import LEAST_KERNEL_NS
from pyprof.report.time.overview import Overview

HALVES = ("bf16", "fp16")
_TILE = re.compile(r"gemm_(\d+)x(\d+)")
_NO_TILE = (np.nan, np.nan)
# How many times as fast as fp32 half types are at least, on any device of this major compute capability.
_FASTER = {7: 4.0, 8: 2.0, 9: 8.0, 10: 8.0, 12: 2.0}


class Products:
    """Which classes of records are products that kernels computed, and what they have in common; each column is of classes.

    precision: of the operands (`fp32`, `tf32`, `bf16`, `c64`), as the kernel's name says or else its op, '' unknown; math: what
    it computed in; used: whether on Tensor Cores; off: whether not, although the device has them for it.
    """

    def __init__(self, overview: Overview) -> None:
        self._overview, self._frame = overview, overview.frame
        self._costs, self._records = self._frame.of_classes.costs, self._frame.classes.records
        product = np.array([kernel.is_product for kernel in self._costs.kernels] + [False], np.bool_)[self._costs.kernel]
        self.there: Bools = product & (self._records["kind"] == ActivityKind.KERNEL)
        code, verdicts = self._frame.of_classes.verdicts
        self.math = np.array([verdict.math for verdict in verdicts] + [""], np.str_)[code]
        self.used, self.off = (np.array([verdict.tc == tc for verdict in verdicts] + [False], np.bool_)[code] for tc in "10")

    def of(self, which: Bools) -> SomeProducts:
        """The products of the window that are of some of the classes."""
        rows = self._frame.classes.rows(which & self.there)
        rows = rows[self._overview.inside[rows]]
        costs, held, code = self._frame.costs, self._overview.division.exclusive_ns[rows], self._frame.classes.code[rows]
        return SomeProducts(rows, code, held, costs.of("matmul_flops", rows), costs.of("bytes", rows), self.dram[code])

    @cached_property
    def precision(self) -> npt.NDArray[np.str_]:
        distinct, _, inverse = distinct_rows(self._costs.kernel, self._records["call"])
        found = []
        for kernel, call in distinct.T.tolist():
            tag = operand_tag(self._records.calls[call]) or "" if call >= 0 else ""
            complex_ = tag.startswith("c")  # its real parts are what the kernel's name tells
            named = self._costs.kernels[kernel].precision if kernel >= 0 else None
            found.append(tag if complex_ else named or tag)
        return np.array([*found, ""], np.str_)[inverse]

    def of_kernel(self, attribute: str, unknown: str | int = "") -> npt.NDArray[Any]:
        """An attribute of each one's class of kernel, `unknown` where that is None."""
        found = [getattr(kernel, attribute) for kernel in self._costs.kernels]
        pool = np.array([unknown if value is None else value for value in (*found, None)])
        return pool[self._costs.kernel]

    def peak(self, precision: str) -> Floats:
        """The device's dense peak in FLOP/s, NaN unknown or without."""
        return self._of_device([gpu.peaks.get(precision) for gpu, _ in self._frame.gpus])

    @cached_property
    def major(self) -> Ints:
        """The greatest major compute capability in the names of the kernels of each one's device, 0 without any."""
        kernels = self._costs.kernels
        named = np.array([kernel.min_cc[0] if kernel.min_cc else 0 for kernel in kernels] + [0], np.int64)[self._costs.kernel]
        (_,), _, device = distinct_rows(self._records["gpu"])
        most = np.zeros(int(device.max(initial=0)) + 1, np.int64)
        np.maximum.at(most, device, named)
        return most[device]

    @property
    def least_faster(self) -> Floats:
        """Least speed-up of half precision over fp32 on a device that is known only from its kernels' names."""
        major = self.major
        return np.array([_FASTER.get(one, np.nan) for one in range(int(major.max(initial=0)) + 1)], np.float64)[major]

    @property
    def own_peak(self) -> Floats:
        """The dense peak of each one's own precision, on Tensor Cores where they have it."""
        result = np.full(len(self.there), np.nan)
        for precision in distinct_values(self.precision).tolist():
            mine = self.precision == precision
            result[mine] = self.peak(precision)[mine]
        return result

    @cached_property
    def dram(self) -> Floats:
        """The device's bandwidth in bytes/s, NaN unknown."""
        return self._of_device([gpu.dram_bytes_per_s for gpu, _ in self._frame.gpus])

    @property
    def amd(self) -> Bools:
        """Whether the device is one of AMD."""
        return self._of_device([float(gpu.amd) for gpu, _ in self._frame.gpus]) > 0

    def _of_device(self, values: list[float | None]) -> Floats:
        known = np.array([np.nan if value is None else value for value in values] + [np.nan], np.float64)
        gpu = self._records["gpu"]
        return known[np.zeros_like(gpu) if self._frame.given is not None else gpu]

    @property
    def reuse(self) -> Floats:
        """FLOPs of a product for each element that it reads, at most: of the tile in its name and its grid; NaN unknown."""
        name, records = self._frame.of_classes.of_name(str), self._records
        # Rows and columns that one block of its kernel makes.
        named = [(float(match[1]), float(match[2])) if (match := _TILE.search(text)) else _NO_TILE for text in name.pool]
        tiles = np.array([*named, _NO_TILE])[name.codes]
        tiles[self.of_kernel("kind") != "gemm"] = np.nan  # a convolution reads each element for several rows
        m, n = (tiles[:, at] * records[f"grid_{axis}"] for at, axis in enumerate("xy"))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(2 * m * n / (m + n))


class SomeProducts(NamedTuple):
    """Some products: positions of their records, group numbers, exclusive time, FLOPs and bytes (-1 unknown), bandwidth of the
    device."""

    rows: Ints
    code: Ints
    exclusive_ns: Ints
    flops: Ints
    bytes: Ints
    dram: Floats

    @property
    def shaped(self) -> Bools:
        """Whether FLOPs and bytes are known."""
        known: Bools = (self.flops > 0) & (self.bytes >= 0) & ~np.isnan(self.dram)
        return known

    def take(self, which: Bools | Ints) -> SomeProducts:
        """Choose some of them by mask or index."""
        rows, code, held, flops, moved, dram = self
        return SomeProducts(rows[which], code[which], held[which], flops[which], moved[which], dram[which])

    def least_ns(self, peak: Floats, share: float = 1.0) -> Floats:
        """The least time at a peak of each class, each moving this share of its bytes; NaN if that is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            roof = np.maximum(self.flops / peak[self.code], share * self.bytes / self.dram) * 1e9
        return np.where(self.shaped, np.maximum(roof, LEAST_KERNEL_NS), np.nan)
