"""A frame and the records of a window -> how well the devices' peaks were used: FLOPs, rates, MFU and HFU, or bounds of them.

Model FLOPs utilisation (Chowdhery et al.: PaLM, 2022, appendix B) is the matrix FLOPs of forward and backward, recomputation
left out, over wall time times the sum of the devices' peaks; hardware FLOPs utilisation counts what was recomputed too. A peak
is dense, that of the unit and precision in which each product ran, their mean weighted by the products' time. As in torch's
FlopCounterMode, recomputed is what runs again for a checkpoint; scores that fused attention computes again belong to its
backward.

Optimizers multiply matrices as well (Muon, Shampoo), which is no work of the model and is not counted. A product whose phase is
unknown is counted: optimizers are known by their ranges and ops, so that a product outside of these is the model's. How a
window is found and how anything is printed is not known here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import spans, summed, union
from pyprof.columns.types import Bools, Ints
from pyprof.hardware import cpus
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.frame import Frame, operand_tag
from pyprof.prof.sums import Amount, KnownSums, is_enough
from pyprof.tables.table import PART_ROWS

_COMPUTE = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)
_OPTIMIZER = PHASES.index("optimizer")
_Device = tuple[int, int, int]  # rank, process, number
_CPU = (-1, -1, -1)


class Utilisation(NamedTuple):
    """Work done by the devices in a window, and their peaks. None is unknown.

    wall_ns: length of the window; busy_ns: its time with work on a device, mean over the devices; matmul_flops: of the products
    of forward and backward without recomputation; recomputed_flops: of those that ran again; flops: matrix and vector
    operations of all records, None if too few are known, flops_min: what they are at least then; complete: whether all
    products and their precisions are known, but for 1 % of the time, so that the shares are no lower bounds; devices: how many;
    peak_flops_per_s: sum over the devices of the mean peak of their products; peaks: precision (`bf16`) -> its share of the
    time of all products, largest first.
    """

    wall_ns: int
    busy_ns: int
    matmul_flops: int | None
    recomputed_flops: int | None
    flops: int | None
    flops_min: int | None
    complete: bool
    devices: int
    peak_flops_per_s: float | None
    peaks: dict[str, float]

    @property
    def flops_per_wall_s(self) -> float | None:
        """`flops` per second of wall time, all devices together."""
        return _rate(self.flops, self.wall_ns)

    @property
    def flops_per_busy_s(self) -> float | None:
        """`flops` per second of busy time, all devices together."""
        return _rate(self.flops, self.busy_ns)

    @property
    def flops_per_wall_s_min(self) -> float | None:
        """Lower bound of that rate where it is unknown."""
        return _rate(self.flops_min, self.wall_ns)

    @property
    def flops_per_busy_s_min(self) -> float | None:
        """Lower bound of that rate where it is unknown."""
        return _rate(self.flops_min, self.busy_ns)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, 0 to 1; None if the FLOPs of some product are unknown."""
        return self._share(self.matmul_flops) if self.complete else None

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilisation, at least `mfu`; None if the FLOPs of some product are unknown."""
        return self._share(self._all_flops) if self.complete else None

    @property
    def mfu_min(self) -> float | None:
        """Lower bound of the model FLOPs utilisation; None if that itself is known, or no product is."""
        return None if self.complete else self._share(self.matmul_flops)

    @property
    def hfu_min(self) -> float | None:
        """Lower bound of the hardware FLOPs utilisation; None as for `mfu_min`."""
        return None if self.complete else self._share(self._all_flops)

    @property
    def _all_flops(self) -> int | None:
        return None if self.matmul_flops is None else self.matmul_flops + (self.recomputed_flops or 0)

    def _share(self, flops: int | None) -> float | None:
        rate = _rate(flops, self.wall_ns)
        return None if rate is None or not self.peak_flops_per_s else rate / self.peak_flops_per_s


def _rate(flops: int | None, ns: int) -> float | None:
    return None if flops is None or ns <= 0 else flops / ns * 1e9


def utilisation(frame: Frame, rows: Bools | Ints, wall_ns: int, busy_ns: int | None = None) -> Utilisation:
    """The utilisation of the records at these positions (or where a mask is true) of a frame, in a window of this length.

    busy_ns: mean over the devices, by default of the union of these records on each. A device is one number in one process; on
    a capture without a GPU the CPU is one.
    """
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
    sums = _Sums(frame, rows)
    devices = sums.devices
    if busy_ns is None:
        device, start = distinct_rows(*_device(frame.records, rows)).inverse, frame.records["start_ns"][rows]
        busy = union(device, start, start + np.maximum(frame.records["dur_ns"][rows], 0)).total(devices)
        busy_ns = round(int(busy.sum()) / max(devices, 1))
    products = [_Rated(alike, *_peak_of(frame, alike), ns) for alike, ns in sums.products_ns.items()]
    all_ns = sum(one.ns for one in products)
    known_ns = sum(one.ns for one in products if one.alike.known)
    unsure_ns = sum(one.ns for one in products if one.alike.known and not one.precision)
    known = any(one.alike.known for one in products) or not products
    shares = Counter[str]()
    for one in products:
        shares[one.precision] += one.ns
    return Utilisation(
        wall_ns,
        busy_ns,
        sums.once if known else None,
        sums.again if known else None,
        *sums.flops,
        _enough(known_ns - unsure_ns, all_ns)
        and _enough(sums.compute_ns - sums.unlaunched_ns, sums.compute_ns)
        and not sums.one_way,
        devices,
        _mean_peaks(products, devices),
        {precision: ns / all_ns for precision, ns in shares.most_common() if precision and ns},
    )


class _Alike(NamedTuple):
    """Key of products that share a peak. verdict, gpu: codes into the frame's; call: code into its calls on the CPU, and where
    the kernel does not tell the precision; known: whether their FLOPs are known."""

    device: _Device
    verdict: int
    gpu: int
    call: int
    known: bool


class _Rated(NamedTuple):
    """Products that share a peak: precision ('' unknown), peak in FLOP/s (None unknown), time."""

    alike: _Alike
    precision: str
    peak: float | None
    ns: int


class _Sums:
    """Sums over rows of a frame. once, again: matrix FLOPs without and of recomputation; flops: all FLOPs; unlaunched_ns: time
    of kernels without op and launch; one_way: whether a CPU program trained but its backward pass was not recorded (ranges of
    autograd's functions are missing; on a GPU its kernels would be seen); products_ns: time of products and of records that
    may be products."""

    def __init__(self, frame: Frame, rows: Ints) -> None:
        alike, costs, (code, verdicts) = frame.classes.records, frame.costs, frame.class_verdicts
        cells = _Cells.of(frame, rows)
        of, codes = cells.of_class, code[cells.of_class]
        sure = costs.pools.flops_bound == 0  # a bound is not added up
        pools = (np.where(sure, pool, -1) for pool in (costs.pools.matmul_flops, costs.pools.vector_flops))
        matmul, vector = (pool.take(cells.cost) for pool in pools)
        kind, phase, call = (alike[name][of] for name in ("kind", "phase", "call"))
        on_cpu, compute = kind == ActivityKind.CPU, among(kind, _COMPUTE)
        known = compute & (matmul >= 0) & (vector >= 0)
        self.compute_ns = int(cells.time_ns[compute].sum())
        self.flops = _amount(cells, compute, known, _total(matmul, cells.number, known) + _total(vector, cells.number, known))
        self.one_way = (phase[on_cpu] == _OPTIMIZER).any() and not (phase[on_cpu] == PHASES.index("backward")).any()
        of_model = compute & (phase != _OPTIMIZER)
        product, again = of_model & (matmul > 0), alike["recomputed"][of] == 1
        self.once, self.again = (_total(matmul, cells.number, product & which) for which in (~again, again))
        device = _device(alike, of)
        self.devices = distinct_rows(*device).columns.shape[1]
        # Possible products, by kernel name or, on the CPU, by op: all records not known to be something else.
        by_name = np.array([found.tc != "-" or found.math != "" for found in verdicts], np.bool_)
        # An op without a formula, or without a name, may be one.
        other = (not formulas.known(call.name) or formulas.matmul_class(call.name) for call in frame.records.calls)
        by_op = np.array([*other, True], np.bool_)
        may = np.where(on_cpu, by_op[alike["own"][of]], by_name[codes] | (kind == ActivityKind.GRAPH))
        chosen = product | (of_model & (matmul < 0) & may)
        unsure = np.array([not found.math for found in verdicts], np.bool_)
        call = np.where(on_cpu | (product & unsure[codes]), call, -1)
        keys = (*device, codes, alike["gpu"][of], call, product)
        found = distinct_rows(*(key[chosen] for key in keys))
        spent = summed(found.inverse, cells.time_ns[chosen], found.columns.shape[1]).tolist()
        first, _ = spans(found.inverse, cells.first[chosen], cells.first[chosen], len(spent))
        self.products_ns = Counter[_Alike]()
        for at in np.argsort(first // PART_ROWS, kind="stable").tolist():  # their order decides how fractions are rounded
            rank, pid, number, verdict, gpu, named, is_known = found.columns[:, at].tolist()
            self.products_ns[_Alike((rank, pid, number), verdict, gpu, named, bool(is_known))] += spent[at]
        may = (alike["call"] < 0) & among(alike["kind"], _COMPUTE) & (alike["kind"] != ActivityKind.CPU)
        own = rows[may[frame.classes.code[rows]]]
        self.unlaunched_ns = int(np.maximum(frame.records["dur_ns"][own], 0)[frame.records["launch_ns"][own] < 0].sum())


class _Cells(NamedTuple):
    """Records of one group with the same cost, one row each: group, cost (row of the pools), how many there are, their time,
    and the position of the first."""

    of_class: Ints
    cost: Ints
    number: Ints
    time_ns: Ints
    first: Ints

    @classmethod
    def of(cls, frame: Frame, rows: Ints) -> _Cells:
        """Cells of the records at these positions."""
        took = np.maximum(frame.records["dur_ns"][rows], 0)
        (of_class, cost), first, which = distinct_rows(frame.classes.code[rows], frame.costs.code[rows])
        return cls(of_class, cost, np.bincount(which, minlength=len(first)), summed(which, took, len(first)), first)


def _total(values: Ints, number: Ints, which: Bools) -> int:
    """The sum of values that stand for several records each."""
    return sum(value * often for value, often in zip(values[which].tolist(), number[which].tolist(), strict=True))


def _amount(cells: _Cells, all_of: Bools, known: Bools, total: int) -> Amount:
    """The sum over cells, of which some are known."""
    times, numbers = ([int(column[which].sum()) for which in (known, all_of)] for column in (cells.time_ns, cells.number))
    columns = (np.array([one]) for one in (total, times[0], numbers[0], times[1], numbers[1]))
    return KnownSums(*columns).amounts()[0]


def _device(records: Records, rows: Ints) -> list[Ints]:
    """Rank, process and number of each row's device, all -1 for the CPU."""
    on_cpu = records["kind"][rows] == ActivityKind.CPU
    return [np.where(on_cpu, -1, records[name][rows]) for name in ("rank", "pid", "device")]


def _enough(known_ns: int, all_ns: int) -> bool:
    """Whether the known part of the time is large enough for its sum to stand for the whole."""
    return known_ns == all_ns or bool(is_enough(known_ns, all_ns, known_ns, all_ns))


def _peak_of(frame: Frame, alike: _Alike) -> tuple[str, float | None]:
    """(precision, '' unknown; FLOP/s that the device can do in it, or at most on operands of this type; None unknown)."""
    tag = operand_tag(frame.records.calls[alike.call]) or "" if alike.call >= 0 else ""
    if alike.device == _CPU:
        measured = cpus.peak()
        rate = measured.tflops.get(tag) if measured is not None else None
        return tag, None if rate is None else rate * 1e12
    found, gpu = frame.class_verdicts[1][alike.verdict], alike.gpu if frame.given is None else 0
    if not 0 <= gpu < len(frame.gpus):
        return found.math, None
    device = frame.gpus[gpu][0]
    if found.math:
        return found.math, device.peak(found.math, found.unit)
    fastest = {"fp32": ("fp32", "tf32"), "fp64": ("fp64", "fp64_tensor")}.get(tag, (tag,))
    return "", max((device.peaks[precision] for precision in fastest if precision in device.peaks), default=None)


def _mean_peaks(products: list[_Rated], devices: int) -> float | None:
    """Sum over devices of the mean peak of their products, weighted by time; None if too few peaks are known.

    A device without products counts with the mean of the others.
    """
    known = [one for one in products if one.alike.known]
    rated = [(one.alike.device, one.peak, max(one.ns, 1)) for one in products if one.peak is not None]
    if not known or not rated or not _enough(sum(o.ns for o in known if o.peak is not None), sum(o.ns for o in known)):
        return None
    least = min(peak for _, peak, _ in rated)  # where all peaks are equal, their mean is exactly theirs
    above, weight = defaultdict[_Device, list[float]](list), Counter[_Device]()
    for device, peak, ns in rated:
        above[device].append((peak - least) * ns)
        weight[device] += ns
    # Products come in an order that depends on how many records are handled at a time; fsum does not.
    mean = math.fsum(math.fsum(above[device]) / ns for device, ns in weight.items()) / len(weight)
    return (least + mean) * devices
