"""The JSON Schemas of tables, from the tables themselves: pyprof/help/schemas/*.json but for summary and diff.

    python scripts/make_schemas.py

Every report is made of captures that the tests write. Each column is described by its header: its help, its unit, the type of
its values, which may be null unless it is made of known numbers or listed below. The tests hold the stored files against what
this makes, and the output of captures against the files. `pyprof summary` and `pyprof diff` write no tables: their schemas
are written by hand.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pyprof.cli import main  # noqa: E402
from pyprof.commands.inductor import bench_table  # noqa: E402
from pyprof.compiled.report import categories, kernels  # noqa: E402
from pyprof.counters.table import HEADERS as COUNTERS  # noqa: E402
from pyprof.prof.columns import HEADERS, SUMS, TORCH_COLUMNS, TORCH_KEYS, TREE  # noqa: E402
from pyprof.report import gaps  # noqa: E402
from pyprof.report.diff.document import where_table  # noqa: E402
from pyprof.report.summary import tables as summary_tables  # noqa: E402
from pyprof.report.time.causes import MEANINGS  # noqa: E402
from pyprof.tables import formats  # noqa: E402
from pyprof.tables.table import AnyTable, Fractions, Header, Integers, LazyTable, Values  # noqa: E402
from pyprof.timers import readings  # noqa: E402
from pyprof.timers.generated import KernelResult  # noqa: E402
from tests.counters.test_counters import event, launch, op, trace  # noqa: E402
from tests.rank_traces import Steps  # noqa: E402
from tests.report.diff.test_diff import Program, steady  # noqa: E402
from tests.timers.test_block_timers import filled  # noqa: E402

FOLDER = ROOT / "pyprof" / "help" / "schemas"
DATA = ROOT / "tests" / "data"
Schema = dict[str, Any]
_AMOUNTS = "calls kernels time"
# Keys that hold a value in every row, by table; so do columns made by Integers.known.
ALWAYS = {
    name: keys.split()
    for name, keys in {
        "streams": "rows span busy elsewhere",
        "gaps": "start idle cause", "latency": "launches", "queue": "start length most",
        "overlap": "span compute comm exposed copy copyexposed idle", "categories": "category launches time_us",
        "kernels": "category launches time_us avg_us", "figures": "figure unit", "time": "by time",
        "advice": "kind evidence do", "layers": f"inside {_AMOUNTS}", "families": _AMOUNTS,
        "lost": "bound kernels time lost peak",
        "notes": "note", "ranks": "met left_out", "clocks": "aligned place", "collectives": "kind turn late_us skew_us wait_us",
        "bandwidth": "kind count waiting", "stragglers": "layer op", "where": "op shape layer what", "blocks": "flags",
        "record": "idx kind", "group": _AMOUNTS, "layer": _AMOUNTS, "torch_op": "calls",
        "gaps ops": "cause gaps time longest", "summary ops": _AMOUNTS, "summary steps": "step time",
        "ranks steps": "collectives wait_us skew_us",
    }.items()
}  # fmt: skip
# Numbers whose unit a header cannot say.
UNITS = {("figures", "value"): "what the key `unit` says"}
_WIDTH = 120  # of a line
SELECTED = "Rows and columns that -c, --where, --sort and --top choose; without -c a row has every key."


def column(table: str, header: Header, values: Values) -> Schema:
    """What a key of a row holds."""
    kind = "integer" if isinstance(values, Integers) else "number" if isinstance(values, Fractions) else "string"
    known = kind == "integer" and values.unknown.strides == (0,) and len(values.unknown) > 0  # made by Integers.known
    found: Schema = {
        "description": header.help,
        "type": kind if known or header.key in ALWAYS.get(table, ()) else [kind, "null"],
    }
    return found if kind == "string" else {**found, "x-unit": UNITS.get((table, header.key)) or header.unit or "1"}


def row(table: AnyTable, about: str, name: str = "") -> Schema:
    """What a row of a table holds; name: of the table in ALWAYS."""
    name = name or table.name
    source = table.source if isinstance(table, LazyTable) else table  # its masks are those that it was made with
    properties = {header.key: column(name, header, source.of(header.key)) for header in table.headers}
    wrong = set(ALWAYS.get(name, ())) - set(properties)
    assert not wrong, f"{name} has no {wrong}"
    return {"description": about, "type": "object", "properties": properties, "additionalProperties": False}


def about(make: Callable[..., object]) -> str:
    """The first sentence of a function that makes a table."""
    assert make.__doc__, make
    return make.__doc__.partition("\n")[0]


def tables_of(*words: str) -> list[AnyTable]:
    """The tables that a command writes as JSON."""
    found: list[AnyTable] = []
    form = formats.FORMATS["json"]
    formats.FORMATS["json"] = form._replace(write=lambda table, stream: found.append(table))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert main([*words, "--format", "json"]) == 0, words
    finally:
        formats.FORMATS["json"] = form
    return found


def document(command: str, about: str, rows: Mapping[str, Schema], patterns: Mapping[str, Schema] | None = None) -> Schema:
    """The schema of a document that holds tables. rows: of each table by its name; patterns: by expressions for names."""

    def table(of: Schema) -> Schema:
        return {
            "description": of["description"],
            "type": "array",
            "items": {key: of[key] for key in of if key != "description"},
        }

    found: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pyprof {command} --format json",
        "description": f"{about} {SELECTED}",
        "type": "object",
        "properties": {
            "schema": {"description": "version of this format", "const": 1},
            **{name: table(of) for name, of in rows.items()},
        },
        "required": ["schema"],
        "minProperties": 2,
        "additionalProperties": False,
    }
    if patterns:
        found["patternProperties"] = {name: table(of) for name, of in patterns.items()}
    return found


def made(folder: Path) -> dict[str, Schema]:
    """Every schema of a document of tables, by its name. folder: an empty one for captures."""
    step = Program(steady()).write(folder / "step.sqlite")
    return {
        "summary-tables": _summary_tables(step),
        "diff-tables": _diff_tables(step),
        "gaps": _gaps(step),
        "prof": _prof(step),
        "ranks": _ranks(folder / "ranks"),
        "inductor": _inductor(step),
        "counters": _counters(folder),
        "timers": _timers(folder / "timers.npz"),
    }


def _summary_tables(file: str) -> Schema:
    rows = {}
    for name, make in summary_tables.TABLES.items():
        [table] = tables_of("summary", file, "--table", name)
        rows[name] = row(table, about(make), f"summary {name}" if name in ("ops", "steps") else name)
        several = {"description": "the capture; only where several were given", "type": "string"}
        rows[name]["properties"] = {"file": several, **rows[name]["properties"]}
    return document("summary FILE... --table NAME", "One table of the summary.", rows)


def _diff_tables(file: str) -> Schema:
    [table] = tables_of("diff", file, file, "--table", "where")
    return document("diff BEFORE AFTER --table where", "One table.", {"where": row(table, about(where_table))})


def _gaps(file: str) -> Schema:
    tables = zip(tables_of("gaps", file), gaps.TABLES.items(), strict=True)
    rows = {name: row(table, about(make), "gaps ops" if name == "ops" else name) for table, (name, make) in tables}
    found = document("gaps FILE", "Where devices idle and why; --table NAME: that table alone.", rows)
    ns = {"type": "integer", "minimum": 0, "x-unit": "ns"}
    causes = {cause: {"description": text, **ns} for cause, text in MEANINGS.items()}
    found["properties"] |= {
        "schema": {"description": "version of this format", "const": gaps.SCHEMA},
        "wall_ns": {"description": "length of the window", **ns},
        "idle_ns": {
            "description": "idle time by cause, as `pyprof summary` has it: mean over the devices",
            "type": "object", "properties": causes, "required": [*causes], "additionalProperties": False,
        },
    }  # fmt: skip
    found["required"] = ["schema", "wall_ns", "idle_ns"]
    return found


def _prof(file: str) -> Schema:
    """Rows are records, groups of them, layers of a tree, or the ops of torch's own table."""

    def keys(*headers: Header) -> str:
        return ",".join(header.key for header in headers)

    torch = str(DATA / "kineto_cpu.json.gz")
    kinds = {
        "record": (("-c", keys(*HEADERS)), file, "one kernel (without a GPU an op on the CPU); copies and fills with --kinds"),
        "group": (("--group-by", "op", "-c", keys(*SUMS)), file, "with --group-by: the columns grouped by, and sums"),
        "layer": (("--tree", "layer", "-c", keys(*TREE, *SUMS)), file, "with --tree layer: a layer with all inside it"),
        "torch_op": (
            ("--group-by", "op,shape", "-c", keys(*TORCH_KEYS, *TORCH_COLUMNS)), torch,
            "with --group-by and a column of torch's own table: an op, those inside others too",
        ),
    }  # fmt: skip
    rows = {name: row(tables_of("prof", of, *words)[0], said, name) for name, (words, of, said) in kinds.items()}
    rows["group"]["properties"] = {**rows["record"]["properties"], **rows["group"]["properties"]}
    any_of = {"description": "one row each", "anyOf": [{"$ref": f"#/$defs/{name}"} for name in rows]}
    return {**document("prof FILE...", "Records, or groups of them.", {"rows": any_of}), "$defs": rows}


def _ranks(folder: Path) -> Schema:
    Steps(3, loading={(1, 1): 500}).write(folder)
    found = {t.name: row(t, t.title, "ranks steps" if t.name == "steps" else t.name) for t in tables_of("ranks", str(folder))}
    [matrix] = tables_of("ranks", str(folder), "--matrix", "wait")
    of = row(matrix, "ranks down and steps across")
    (rank, of_rank), (_, step), *_ = of["properties"].items()
    of["properties"] = {rank: of_rank}
    of["patternProperties"] = {r"^step_(\d+|all)$": {**step, "description": "the measure in that step"}}
    text = "A job on many ranks; --table NAME: that table alone; --matrix MEASURE: a matrix."
    return document("ranks DIR|FILE...", text, found, {"^matrix of [a-z_]+$": of})


def _inductor(file: str) -> Schema:
    unknown = KernelResult("k", "", 1.0, 1.0, 1.0, 0.0, 1, None, None)
    rows = {table.name: row(table, said) for table, said in (
        *zip(tables_of("inductor", file), map(about, (categories, kernels)), strict=True),
        (bench_table([unknown]), "of `inductor bench`: " + about(bench_table)),
    )}  # fmt: skip
    return document("inductor FILE", "A compiled program.", rows)


def _counters(folder: Path) -> Schema:
    csv = folder / "net.csv"
    csv.write_text('"ID","Process ID","Kernel Name","x__y.sum"\n"","","",""\n"0","9","k","5"\n')
    sample = {"ph": "C", "cat": "hardware_counters", "name": "sm__x", "pid": "GPU 0 Counters", "tid": 0, "args": {"": 5}}
    kernel = event("kernel", "k", 100, 10, pid=0, correlation=1, device=0, stream=7)
    samples_of = trace(folder, op("aten::a", 0, 20), launch(1, 5), kernel, *({**sample, "ts": ts} for ts in (90, 120)))
    [launches] = tables_of("counters", str(csv), "-c", ",".join(header.key for header in COUNTERS))
    [samples] = tables_of("counters", str(samples_of), "-c", "step,layer,op,kernels,time")
    found = {
        "rows": row(launches, "one measured launch"),
        "samples": row(samples, "of samples through time: a step, layer, op"),
    }
    for of in found.values():
        of["additionalProperties"] = {
            "description": "a metric of the file under its own name, in its base unit", "type": ["number", "string", "null"],
        }  # fmt: skip
    return document("counters FILE...", "Measured counters.", found)


def _timers(file: Path) -> Schema:
    filled().save(file)
    makers = {"blocks": readings.blocks, "lanes": readings.lanes}
    rows = {name: row(tables_of("timers", str(file), "--table", name)[0], about(make)) for name, make in makers.items()}
    return document("timers FILE", "Blocks inside a kernel; --table lanes: its lanes.", rows)


def text_of(value: object, depth: int = 0) -> str:
    """A schema as its file holds it: what fits on a line is one."""
    whole = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or len(whole) + depth <= _WIDTH:
        return whole
    parts = [
        f"{' ' * (depth + 1)}{json.dumps(key)}: {text_of(one, depth + 1)}" if isinstance(value, dict)
        else f"{' ' * (depth + 1)}{text_of(key, depth + 1)}"
        for key, one in (value.items() if isinstance(value, dict) else zip(value, value, strict=True))
    ]  # fmt: skip
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + "\n" + ",\n".join(parts) + "\n" + " " * depth + end


def files() -> Iterator[tuple[Path, str]]:
    """The file of each schema, and what it should hold."""
    with tempfile.TemporaryDirectory() as folder:
        for name, schema in made(Path(folder)).items():
            yield FOLDER / f"{name}.json", text_of(schema) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
