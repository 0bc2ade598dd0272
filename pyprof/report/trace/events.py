"""The tables of a Trace and its records -> the events of a timeline as torch.profiler writes them, plus pyprof's knowledge.

Each table is one part, or several are one if their order matters. Names and args are Kineto's where it has them, so readers of
its traces read these as well; codes that only pyprof needs are in `exported`.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Array, Ints
from pyprof.model.markers import Kind
from pyprof.model.opcall import format_call
from pyprof.model.trace import ActivityKind, Strings, Trace
from pyprof.parse.sources.kineto.exported import ActivityCodes, RangeCodes
from pyprof.prof.columns import HEADERS, RecordTable
from pyprof.prof.frame import Frame
from pyprof.report.trace.parts import Part, each, known, members, micros, shortened, text
from pyprof.report.trace.tracks import Tracks, lanes, processes_of, threads_of
from pyprof.tables.table import Texts, Values

_CATEGORIES = ("kernel", "cuda_graph", "gpu_memcpy", "gpu_memset", "pyprof_op")  # by ActivityKind; the last is not read back
_ANNOTATIONS = (Kind.USER, Kind.LAYER, Kind.STEP, Kind.OPTIMIZER, Kind.TRACE, Kind.REPR)
# Columns of prof -> their names among the args.
_ARGS = {
    "op": "op", "mod": "module", "params": "params", "layer": "layer", "src": "source line", "phase": "phase", "step": "step",
    "flops": "FLOPs", "bytes": "least bytes", "tflops": "TFLOP/s", "gbs": "GB/s", "peak": "% of roofline", "bound": "bound",
    "tc": "Tensor Cores", "math": "math", "occ": "theoretical occupancy %", "inner": "inner op",
    "delay": "launch to begin (ns)",
}  # fmt: skip
_USED = {"1": "used", "0": "not used", "-": ""}
_FRAME, _RANGE, _LAUNCH = range(3)  # tables of the host: of two with equal times the earlier is the outer


class TimelineEvents:
    """The events of one timeline. frame: all records; trace: the part that is drawn; chosen: the records that are drawn.

    labels: rows of the trace's markers that are drawn; the file numbers them by their place here.
    """

    def __init__(self, frame: Frame, trace: Trace, chosen: Ints, since_ns: int, texts: Strings) -> None:
        self.frame, self.trace, self.since_ns, self.texts = frame, trace, since_ns, texts
        self.tracks = Tracks(trace)
        records = frame.records
        begin, took = (records[name][chosen].astype(np.int64) for name in ("start_ns", "dur_ns"))
        self.chosen = chosen[np.lexsort((-took, begin))]  # of those that begin together the outer first
        self.process = processes_of(trace, records)
        self.thread = threads_of(trace, records, self.process)
        self.labels = np.unique(trace.ranges["label"]).astype(np.int64)
        self._place_on_host()
        self._place_records()

    def parts(self) -> list[Part]:
        launched = self.chosen[(self.frame.records["launch_ns"][self.chosen] >= 0) & (self.thread[self.chosen] >= 0)]
        launched = launched[self.frame.records["kind"][launched] != ActivityKind.CPU]
        trace, samples = self.trace, self.trace.samples
        totals = np.flatnonzero(trace.memory["allocated"] >= 0)
        totals = totals[np.argsort(trace.memory["time_ns"][totals], kind="stable")]  # values of a counter follow one another
        found = [
            Part(len(self._host), lambda at: self._host_lines(self._host[at]), self._host_start[self._host]),
            Part(len(self.chosen), lambda at: self._record_lines(self.chosen[at]), self.frame.records["start_ns"][self.chosen]),
            Part(2 * len(launched), lambda at: self._arrow_lines(launched[at // 2], at % 2 == 1),
                 np.repeat(self.frame.records["start_ns"][launched], 2)),
            Part(len(trace.memory["bytes"]), self._memory_lines, trace.memory["time_ns"]),
            Part(len(totals), lambda at: self._total_lines(totals[at]), trace.memory["time_ns"][totals]),
        ]  # fmt: skip
        if samples is not None:
            found.append(Part(len(samples.time_ns), self._sample_lines, samples.time_ns))
        return found

    # ------------------------------------------------------------------ where things are drawn

    def _place_on_host(self) -> None:
        """Put ranges, API calls and Python frames on the tracks of their threads, outer ones first."""
        tables = (self.trace.frames, self.trace.ranges, self.trace.launches)
        keys = ("start_ns", "end_ns", "thread")
        start, end, thread = (np.concatenate([t[key].astype(np.int64) for t in tables]) for key in keys)
        end = np.maximum(end, start)
        kind = np.repeat([_FRAME, _RANGE, _LAUNCH], [len(t["start_ns"]) for t in tables])
        at = np.concatenate([np.arange(len(t["start_ns"])) for t in tables])
        free, op_id = np.zeros(len(kind), np.int64), np.zeros(len(kind), np.int64)
        free[kind == _RANGE], op_id[kind == _RANGE] = self.trace.ranges["free"], self.trace.ranges["op_id"]
        order = np.lexsort((op_id, kind, -end, start, thread))
        weight = np.select([kind == _LAUNCH, free == 1, kind == _FRAME], [3, 0, 1], 2)[order]
        lane = np.empty(len(order), np.int64)
        lane[order] = lanes(thread[order], start[order], end[order], weight)
        self._host_track = self.tracks.of_threads(thread, lane)
        moved = np.flatnonzero((kind == _LAUNCH) & (lane > 0))  # calls that cross others
        places = zip(thread[moved].tolist(), start[moved].tolist(), strict=True)
        self._moved = dict(zip(places, self._host_track[moved].tolist(), strict=True))
        self._host, self._host_kind, self._host_row = np.argsort(start[order], kind="stable"), kind, at
        self._host = order[self._host]
        self._host_start, self._host_end = start, end

    def _place_records(self) -> None:
        """Put records on the tracks of their streams, ops on the CPU beside their threads."""
        records = self.frame.records
        self._track = np.full(len(records), -1, np.int64)
        cpu = records["kind"][self.chosen] == ActivityKind.CPU
        rows = self.chosen[cpu]
        self._track[rows] = self.tracks.of_ops(*self._laned(rows, self.thread))
        rows = self.chosen[~cpu]
        self._track[rows] = self.tracks.of_streams(*self._laned(rows, self.process, records["device"], records["stream"]))

    def _laned(self, rows: Ints, *keys: Array) -> list[Ints]:
        """These columns of these records, and behind them the lane of each record."""
        columns = [key[rows].astype(np.int64) for key in keys]
        start = self.frame.records["start_ns"][rows].astype(np.int64)
        end = start + np.maximum(self.frame.records["dur_ns"][rows], 0)
        group = distinct_rows(*columns).inverse
        order = np.lexsort((-end, start, group))
        lane = np.empty(len(rows), np.int64)
        lane[order] = lanes(group[order], start[order], end[order], np.zeros(len(rows), np.int64))
        return [*columns, lane]

    def _times(self, start: Ints, end: Ints) -> list[str]:
        pairs = zip(micros(start - self.since_ns), micros(end - start), strict=True)
        return [f'"ts":{begin},"dur":{took},' for begin, took in pairs]

    def _on(self, track: Ints) -> list[str]:
        return each(lambda code: self.tracks.all[code].text, track)

    # ------------------------------------------------------------------ the host

    def _host_lines(self, rows: Ints) -> list[str]:
        lines = np.empty(len(rows), object)
        makers = {_FRAME: self._frame_lines, _RANGE: self._range_lines, _LAUNCH: self._launch_lines}
        kind = self._host_kind[rows]
        for one, make in makers.items():
            mine = rows[kind == one]
            if len(mine):
                start = self._host_start[mine]
                # Begin and duration 0 would be read as no time: what a profiler writes for events that it lost.
                times = self._times(start, np.maximum(self._host_end[mine], start + (start == self.since_ns)))
                where = zip(self._on(self._host_track[mine]), times, strict=True)
                lines[kind == one] = make(self._host_row[mine], list(map("".join, where)))
        found: list[str] = lines.tolist()
        return found

    def _frame_lines(self, rows: Ints, middle: list[str]) -> list[str]:
        heads = each(lambda code: _head("python_function", self.trace.strings[code]), self.trace.frames["name"][rows])
        return [f'{head}{inner}"args":{{}}}}' for head, inner in zip(heads, middle, strict=True)]

    def _launch_lines(self, rows: Ints, middle: list[str]) -> list[str]:
        table = self.trace.launches
        heads = each(lambda code: _head("cuda_runtime", self.trace.strings[code]), table["name"][rows])
        kernel = each(lambda code: f',"kernel":{text(self.trace.strings[code])}' if code >= 0 else "", table["kernel"][rows])
        lines = zip(heads, middle, np.maximum(table["corr"][rows], 0).tolist(), kernel, strict=True)
        return [f'{head}{inner}"args":{{"correlation":{corr}{launched}}}}}' for head, inner, corr, launched in lines]

    def _range_lines(self, rows: Ints, middle: list[str]) -> list[str]:
        table = self.trace.ranges
        label, op_id, seq = (table[key][rows] for key in ("label", "op_id", "seq"))

        def head(code: int) -> str:
            marker = self.trace.markers[code]
            return _head("user_annotation" if marker.kind in _ANNOTATIONS else "cpu_op", marker.name)

        heads = each(head, label)
        args = each(self._range_args, *(table[key][rows] for key in RangeCodes.__struct_fields__))
        parts = zip(heads, middle, args, known("External id", op_id), known("Sequence number", seq), strict=True)
        return [f'{begin}{inner}"args":{{{codes}{number}{sequence}}}}}' for begin, inner, codes, number, sequence in parts]

    def _range_args(self, label: int, domain: int, opened: int, free: int, fwd_thread: int, src: int) -> str:
        marker, strings = self.trace.markers[label], self.trace.strings
        of_text = [self.texts.code(strings[code]) if code >= 0 else -1 for code in (domain, src)]
        codes = [int(np.searchsorted(self.labels, label)), of_text[0], opened, free, fwd_thread, of_text[1]]
        while len(codes) > 1 and codes[-1] == (-1, -1, 0, 0, -1, -1)[len(codes) - 1]:
            codes.pop()
        shown = {
            "call": format_call(marker.call) if marker.call is not None and marker.call.described else "",
            "source line": (strings[src] if src >= 0 else "") or ", ".join(marker.src),
            "domain": strings[domain] if domain >= 0 else "",
            "never closed": "yes" if opened else "",
        }
        return f'"pyprof":{text(codes)}' + "".join([f',"{key}":{shortened(one)}' for key, one in shown.items() if one])

    # ------------------------------------------------------------------ the device

    def _record_lines(self, rows: Ints) -> list[str]:
        records, strings = self.frame.records, self.trace.strings
        column = {name: records[name][rows] for name in ("kind", "name", "start_ns", "dur_ns", "corr", "bytes", "graph_node")}
        heads = each(lambda kind, name: _head(_CATEGORIES[kind], strings[name]), column["kind"], column["name"])
        start = column["start_ns"].astype(np.int64)
        times = self._times(start, start + np.maximum(column["dur_ns"], 0))
        sizes = [records[f"{kind}_{axis}"][rows] for kind in ("grid", "block") for axis in "xyz"]
        more = [records[name][rows] for name in ("regs", "smem_bytes", "device", "stream", "copykind")]
        geometry = each(_geometry, self.process[rows], *more, *sizes)
        numbers = [known(key, column[name]) for key, name in _NUMBERS.items()]
        parts = zip(heads, self._on(self._track[rows]), times, geometry, *numbers, self._annotations(rows), strict=True)
        return [f'{head}{track}{time}"args":{{{"".join(args)}}}}}' for head, track, time, *args in parts]

    def _annotations(self, rows: Ints) -> list[str]:
        table = RecordTable(self.frame).take(rows)
        columns: dict[str, Values] = {name: table.of(key) for key, name in _ARGS.items()}
        verdicts = columns["Tensor Cores"]
        if isinstance(verdicts, Texts):
            columns["Tensor Cores"] = verdicts._replace(pool=[_USED.get(one, one) for one in verdicts.pool])
        return members(columns)

    def _arrow_lines(self, rows: Ints, ends: Array) -> list[str]:
        """Arrows from launch calls to activities; each end binds to the slice that begins there."""
        records = self.frame.records
        time = np.where(ends, records["start_ns"][rows], records["launch_ns"][rows]).astype(np.int64)
        call = self.tracks.of_threads(self.thread[rows], np.zeros(len(rows), np.int64))
        if self._moved:
            places = zip(self.thread[rows].tolist(), records["launch_ns"][rows].tolist(), strict=True)
            call = np.array([self._moved.get(*one) for one in zip(places, call.tolist(), strict=True)], np.int64)
        track = np.where(ends, self._track[rows], call)
        heads = ['{"ph":"f","bp":"e",' if end else '{"ph":"s",' for end in ends.tolist()]
        parts = zip(heads, self._on(track), micros(time - self.since_ns), rows.tolist(), strict=True)
        return [f'{head}{on}"ts":{when},"id":{row},"cat":"ac2g","name":"ac2g"}}' for head, on, when, row in parts]

    # ------------------------------------------------------------------ moments

    def _memory_lines(self, rows: Ints) -> list[str]:
        table = self.trace.memory
        track = self._on(self.tracks.of_threads(table["thread"][rows], np.zeros(len(rows), np.int64)))
        totals = [table[name][rows].tolist() for name in ("address", "allocated", "reserved")]
        columns = zip(track, micros(table["time_ns"][rows] - self.since_ns), table["bytes"][rows].tolist(),
                      table["device"][rows].tolist(), *totals, strict=True)  # fmt: skip
        head = '{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]",'
        return [
            f'{head}{on}"ts":{when},"args":{{"Bytes":{size},"Device Type":{int(device >= 0)},"Device Id":{device},'
            f'"Addr":{address},"Total Allocated":{allocated},"Total Reserved":{reserved}}}}}'
            for on, when, size, device, address, allocated, reserved in columns
        ]

    def _total_lines(self, rows: Ints) -> list[str]:
        """A lane for each device: bytes allocated and reserved over time."""
        table = self.trace.memory
        columns = (table[name][rows].tolist() for name in ("device", "allocated", "reserved"))
        found = []
        for when, device, allocated, reserved in zip(micros(table["time_ns"][rows] - self.since_ns), *columns, strict=True):
            name = "memory of the CPU" if device < 0 else f"memory of GPU {device}"
            values = f'"allocated":{allocated}' + (f',"reserved":{reserved}' if reserved > 0 else "")
            head = f'{{"ph":"C","cat":"memory","name":"{name}","pid":{max(device, 0)},"tid":0,'
            found.append(f'{head}"ts":{when},"args":{{{values}}}}}')
        return found

    def _sample_lines(self, rows: Ints) -> list[str]:
        samples = self.trace.samples
        if samples is None:
            return []
        columns = zip(micros(samples.time_ns[rows] - self.since_ns), samples.device[rows].tolist(),
                      samples.metric[rows].tolist(), samples.value[rows].tolist(), strict=True)  # fmt: skip
        return [
            f'{{"ph":"C","cat":"hardware_counters","name":{text(samples.metrics[metric])},"pid":{device},"tid":0,"ts":{when},'
            f'"args":{{"":{text(value)}}}}}'
            for when, device, metric, value in columns
        ]


def args_text() -> str:
    """Name among the args and meaning, one per line, for `pyprof help formats`."""
    meaning = {header.key: header.help for header in HEADERS}
    return "\n".join(f"  {name:23} {meaning[key]}" for key, name in _ARGS.items())


def _head(category: str, name: str) -> str:
    return f'{{"ph":"X","cat":"{category}","name":{text(name)},'


# Kineto's names of the columns that differ from record to record.
_NUMBERS = {"correlation": "corr", "bytes": "bytes", "graph node id": "graph_node"}


def _geometry(process: int, regs: int, smem: int, device: int, stream: int, copykind: int, *sizes: int) -> str:
    shown = {"device": device, "stream": stream, "registers per thread": regs, "shared memory": smem}
    parts = [f',"{key}":{value}' for key, value in shown.items() if value >= 0]
    for key, part in (("grid", sizes[:3]), ("block", sizes[3:])):
        if any(size >= 0 for size in part):
            parts.append(f',"{key}":{text([*part])}')
    codes = ActivityCodes(process, copykind)
    return f'"pyprof":[{codes.process},{codes.copykind}]' + "".join(parts)
