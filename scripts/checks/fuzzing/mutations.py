"""Changes to files, drawn from a random number generator: of bytes and gzip, JSON, lines of records, CSV, Parquet, arrays and programs.

Each function takes a file's bytes and gives others. What SQLite needs is in databases.py.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LONG = 1 << 20
NUMBERS = (0, 1, -1, 7, -5, 2**31 - 1, 2**31, 2**32, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400,
           0.5, -0.5, 1e-300, 1e300, 9.9e18, math.inf, -math.inf, math.nan)  # fmt: skip
TEXTS = ("", " ", "a", "9" * 5000, "\x00", "\x1b[31mred\x1b[0m", "\u202ert", "\ud800", "a\nb\r\nc", '"', "'", ",", "=1+1", "é" * 300, "[" * 600, "f(" + "[" * 600,
         "na", "-", "NaN", "aten::mm", "fp32[4,8]", "nn.Module: X_0", "ProfilerStep#3", "Optimizer.step#Adam.step", "cudaGraphLaunch", "cudaLaunchKernel",
         "hipGraphLaunch", "kernel", "cpu_op", "step[DECODE bs=1]", "execute_context_0(0)_generation_64(64)", "capture_32_FULL", "../../etc/passwd", "(1, 2, 3)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "AddmmBackward0", "gloo:all_reduce", "[[4, 8], [8]]", "a" * 40_000, "void f<" * 3000, "1e999", "0x7", "1,2,3")  # fmt: skip


def odd(random: Random, depth: int = 0) -> Any:
    """A value that nobody expects there."""
    kind = random.randrange(10)
    if kind < 4:
        return random.choice(NUMBERS)
    if kind < 7:
        return random.choice(TEXTS) + ("" if random.random() < 0.98 else "x" * LONG)
    if kind == 7 or depth > 2:
        return random.choice((None, True, False))
    many = random.choice((0, 1, 2, 3, 4, 70))
    if kind == 8:
        return [odd(random, depth + 1) for _ in range(min(many, 4 if depth else 70))]
    return {random.choice(TEXTS[:9]): odd(random, depth + 1) for _ in range(min(many, 4))}


# ---------------------------------------------------------------------------------------------- bytes and gzip


def of_bytes(random: Random, content: bytes) -> bytes:
    """Cut, spliced, overwritten, doubled; invalid UTF-8 among what is put in."""
    at, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    some = random.choice((b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b"[" * (random.choice((50, 5000)) if random.random() < 0.98 else 1_000_000), b"{", b"}", b'"', b"\\", b"9" * 400, b"NaN",
                          b"-", b"\n", b"\xef\xbb\xbf", b"\x1f\x8b", random.randbytes(8), b'{"a":' * (10 if random.random() < 0.9 else 100_000)))  # fmt: skip
    return random.choice((
        lambda: content[:at],
        lambda: content[:at] + some + content[at:],
        lambda: content[:at] + some + content[at + len(some) :],
        lambda: content[:at] + content[min(end, at + 40) :],
        lambda: content[:end] + content[at:],
        lambda: content + content,
        lambda: some + content,
        lambda: content + some,
    ))()  # fmt: skip


def in_gzip(random: Random, content: bytes) -> bytes:
    """Compressed, and then perhaps cut, damaged, in several members, with something after it, or far larger than it looks."""
    packed = gzip.compress(content, 1, mtime=0)
    at = random.randrange(len(content) + 1)
    return random.choice((
        lambda: packed,
        lambda: packed[: random.randrange(2, len(packed))],
        lambda: packed[:-8] + random.randbytes(8),
        lambda: of_bytes(random, packed),
        lambda: gzip.compress(content[:at], 1) + gzip.compress(content[at:], 1),
        lambda: packed + packed,
        lambda: packed + random.randbytes(20),
        lambda: packed + bytes(1000),
        lambda: gzip.compress(content[:at] + random.choice((b" ", b"0", b"[", b"\n", b'"')) * (16 << 20 if random.random() < 0.05 else 1 << 16) + content[at:], 1),
        lambda: gzip.compress(packed, 1),
    ))()  # fmt: skip


# ---------------------------------------------------------------------------------------------- JSON


def of_json(random: Random, content: bytes, keep: Callable[[Any], bool] = lambda event: False) -> bytes:
    """One to five changes of the values in it. keep: what is to stay as it is, in it nothing is changed."""
    value = _parsed(content)
    for _ in range(random.choice((1, 1, 2, 5))):
        value = _changed(random, value, keep)
    return _written(random, value).encode("utf-8", "surrogatepass")


@cache
def _parsed(content: bytes) -> Any:
    """What is never changed in its place."""
    return json.loads(content)


def _written(random: Random, value: Any) -> str:
    """On one line, each event on a line of its own, or each value on one as torch writes it (which takes most time)."""
    layout, ascii_only = random.random(), random.random() < 0.7
    events = value.get("traceEvents") if isinstance(value, dict) else None
    if layout < 0.1:
        return json.dumps(value, ensure_ascii=ascii_only, indent=1)
    if layout < 0.55 or not isinstance(events, list):
        return json.dumps(value, ensure_ascii=ascii_only)
    head = json.dumps({key: one for key, one in value.items() if key != "traceEvents"}, ensure_ascii=ascii_only)
    rows = ",\n".join(json.dumps(event, ensure_ascii=ascii_only) for event in events)
    return f'{head[:-1]}{"," if len(head) > 2 else ""}\n"traceEvents": [\n{rows}\n]}}'


def _changed(random: Random, value: Any, keep: Callable[[Any], bool]) -> Any:
    if keep(value):
        return value
    if isinstance(value, (list, dict)) and value and random.random() < 0.9:
        return _changed_list(random, list(value), keep) if isinstance(value, list) else _changed_dict(random, dict(value), keep)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.5:
        return random.choice(
            (
                -value,
                value + 1,
                value * 1000,
                -value / 2 if abs(value) < 1e300 else 0,
                repr(float(value > 0)),
                random.uniform(0, 5000),
            )
        )
    if isinstance(value, str) and value and random.random() < 0.5:
        at = random.randrange(len(value))
        return random.choice((value[:at], value[at:], value * 2, value[:at] + random.choice(TEXTS) + value[at:], value.upper()))
    return odd(random)


def _changed_list(random: Random, found: list[Any], keep: Callable[[Any], bool]) -> list[Any]:
    at, other = random.randrange(len(found)), random.randrange(len(found))
    action = random.randrange(12)
    if any(keep(found[i]) for i in (at, other)) and action in (0, 1, 2, 3):
        return found
    if action == 0:
        del found[at]
    elif action == 1:
        found.insert(other, found[at])
    elif action == 2:
        found[at] = odd(random)
    elif action == 3 and isinstance(found[at], dict) and isinstance(found[other], dict):  # one takes what another says
        key = random.choice([*found[other]] or [""])
        if key in found[other]:
            found[at] = found[at] | {key: found[other][key]}
    elif action == 4:
        random.shuffle(found)
    elif action == 5:  # one value of all: reused ids, one thread, one time
        found = [dict(row) if isinstance(row, dict) and not keep(row) else row for row in found]
        _same(random, [row for row in found if isinstance(row, dict) and not keep(row)])
    else:
        found[at] = _changed(random, found[at], keep)
    return found


def _same(random: Random, rows: list[dict[str, Any]]) -> None:
    """A value for a key of all of them, or no such key."""
    inner = [row for row in rows if isinstance(row.get("args"), dict)]
    if inner and random.random() < 0.6:
        for row in inner:
            row["args"] = dict(row["args"])
        rows = [row["args"] for row in inner]
    keys = sorted({key for row in rows for key in row if isinstance(key, str)})
    if not keys:
        return
    key, value, drop = random.choice(keys), odd(random), random.random() < 0.3
    for row in rows:
        if key in row:
            row[key] = value
            if drop:
                del row[key]


def _changed_dict(random: Random, found: dict[str, Any], keep: Callable[[Any], bool]) -> dict[str, Any]:
    key = random.choice([*found])
    action = random.randrange(10)
    if action == 0 and not isinstance(found[key], list):
        del found[key]
    elif action == 1:
        found[random.choice(TEXTS[:9])] = odd(random)
    elif action == 2 and "ts" in found:  # crossing and cyclic ranges
        found["ts" if random.random() < 0.5 else "dur"] = random.choice(
            (0, -3, 1e18, 15.5, 1010, 1e-9, random.uniform(0, 5000))
        )
    else:
        heavy = [key for key in found if isinstance(found[key], list) and found[key]]
        key = random.choice(heavy) if heavy and random.random() < 0.8 else key
        found[key] = _changed(random, found[key], keep)
    return found


# ---------------------------------------------------------------------------------------------- lines of records, CSV


def of_lines(random: Random, content: bytes) -> bytes:
    """Lines of records: values changed, lines left out, doubled, in another order."""
    import ast

    found = content.decode().splitlines()
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(len(found))
        action = random.randrange(6)
        if action == 0 and len(found) > 1:
            del found[at]
        elif action == 1:
            found.insert(at, found[random.randrange(len(found))])
        elif action == 2:
            random.shuffle(found)
        else:
            try:
                record = ast.literal_eval(found[at])
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(record, dict) and record:
                changed = _changed_dict(random, record, lambda value: False)
                found[at] = repr(changed) if random.random() < 0.5 else json.dumps(changed)
    return "\n".join(found).encode("utf-8", "surrogatepass") + b"\n"


def of_csv(random: Random, content: bytes) -> bytes:
    """Cells changed, left out, put in; columns and lines too."""
    import csv

    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(random.choice((1, 1, 3))):
        at = random.randrange(len(rows))
        action, row = random.randrange(7), rows[at]
        if action == 0 and len(rows) > 1:
            del rows[at]
        elif action == 1:
            rows.insert(at, list(random.choice(rows)))
        elif action == 2 and row:
            del row[random.randrange(len(row))]
        elif action == 3:
            row.insert(random.randrange(len(row) + 1), str(odd(random, 3)))
        elif action == 4 and rows:
            column = random.randrange(max(map(len, rows)) or 1)
            rows = [one[:column] + one[column + 1 :] for one in rows]
        elif row:
            row[random.randrange(len(row))] = random.choice((str(odd(random, 3)), "1,024.5", "1.024,5", "nan", "(1, 2", "n/a"))
    out = io.StringIO()
    csv.writer(out, quoting=random.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL)), lineterminator="\n", escapechar="\\").writerows(
        rows
    )
    return out.getvalue().encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------------------------------------- Parquet


def of_parquet(random: Random, content: bytes) -> bytes:
    """Columns left out, of another type, with other values; other metadata."""
    table = pq.read_table(io.BytesIO(content))
    for _ in range(random.choice((1, 1, 3))):
        if not table.num_columns:
            break
        at = random.randrange(table.num_columns)
        name, column = table.column_names[at], table.column(at)
        action = random.randrange(7)
        if action == 0:
            table = table.remove_column(at)
        elif action == 1:
            table = table.append_column(name if random.random() < 0.5 else "other", column)
        elif action == 2:
            table = table.take(pa.array([random.randrange(max(table.num_rows, 1)) for _ in range(table.num_rows)]))
        elif action == 3:
            facts = dict(table.schema.metadata or {})
            key = random.choice([*facts] or [b"x"])
            facts[key] = random.choice(
                (b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b"9" * 5000, facts.get(key, b"")[:-1], b'{"a": 1}')
            )
            if random.random() < 0.3:
                del facts[key]
            table = table.replace_schema_metadata(facts)
        elif action == 4:
            table = table.set_column(at, name, pa.nulls(table.num_rows, random.choice((pa.null(), column.type, pa.int64()))))
        else:
            table = table.set_column(at, name, _odd_column(random, column, table.num_rows))
    out = io.BytesIO()
    pq.write_table(table, out, compression=random.choice(("none", "zstd", "snappy")))
    return out.getvalue()


def _odd_column(random: Random, column: pa.ChunkedArray, rows: int) -> pa.Array:
    """The column with one value of its type changed, or one of another type."""
    values = column.to_pylist()
    if rows and random.random() < 0.6:
        values[random.randrange(rows)] = _changed(random, values[random.randrange(rows)], lambda value: False)
        try:
            return pa.array(values, column.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
    one = random.choice((1, -1, 2**40, 0.5, math.nan, "x", "9" * 40, b"\xff", [1], ["a"], {"a": 1}, True, None))
    return pa.array([one] * rows)


# ---------------------------------------------------------------------------------------------- block timers, generated modules


def of_npz(random: Random, content: bytes) -> bytes:
    """Arrays left out, of another shape or type, with other values."""
    with np.load(io.BytesIO(content)) as stored:
        found = {name: stored[name] for name in stored.files}
    for _ in range(random.choice((1, 1, 3))):
        name = random.choice([*found])
        array = found[name]
        action = random.randrange(7)
        if action == 0 and len(found) > 1:
            del found[name]
        elif action == 1:
            found[name] = array.reshape(random.choice(((-1,), (1, -1), (-1, 1), (*array.shape, 1))))
        elif action == 2:
            found[name] = array.astype(random.choice(("U20", "S9", "b1")))
        elif action == 3 and array.ndim:
            found[name] = np.resize(array, [random.choice((0, 1, 3, 70)) for _ in array.shape])
        elif action == 4:
            found[random.choice(("ticks", "starts", "pairs", "sms", "names", "other"))] = array
        else:
            changed = np.array(array)
            at = tuple(random.randrange(max(size, 1)) for size in array.shape)
            if changed.size and changed.dtype.kind in "iuf":
                changed[at if random.random() < 0.7 else ...] = random.choice(
                    (0, -1, 1, 2**31, 2**40, 2**62, -(2**63), 2**63 - 1)
                )
            elif changed.size and changed.dtype.kind in "US":
                changed[at] = random.choice(("", "\x1b[31m", "a\nb", "x" * 99, "na"))
            found[name] = changed
    out = io.BytesIO()
    np.savez(out, **found)  # type: ignore[arg-type]
    return out.getvalue()


_WORD = re.compile(r"\w+")
_PIECES = ("(", ")", "[", "]", "'''", '"', "\\", "\n", "\x00", ":", ",", "{", "*", "(" * 3000, "-" * 3000, "lambda: ", "x0 + " * 4000, "xindex % ", "async ",
           "@", "f'{", "for(;;){", "while(1)", "if (x0) ", "tmp0 ? tmp0 : ")  # fmt: skip
_LITERALS = (*map(str, NUMBERS[:15]), "1e400", "1.5", "True", "None", "-x0", "(1 << 100)", "10**10**10", "9" * 5000)


def of_python(random: Random, content: bytes) -> bytes:
    """Words, numbers and lines of a program changed, left out, repeated."""
    text = content.decode()
    for _ in range(random.choice((1, 1, 3, 6))):
        action = random.randrange(6)
        words = list(_WORD.finditer(text)) or [re.match("", "")]
        one, other = random.choice(words), random.choice(words)
        if one is None or other is None:
            break
        if action == 0:
            lines = text.splitlines(keepends=True)
            at = random.randrange(len(lines))
            repeated = random.choice(([], [lines[at]] * random.choice((2, 300)), [random.choice(lines)]))
            text = "".join([*lines[:at], *repeated, *lines[at + random.choice((1, 1, 4)) :]])
        elif action == 1:
            text = text[: one.start()] + other[0] + text[one.end() :]
        elif action == 2:
            text = text.replace(one[0], other[0]) if len(one[0]) > 1 else text
        elif action == 3:
            one = random.choice([word for word in words if word and word[0][:1].isdigit()] or [one])
            text = text[: one.start()] + random.choice(_LITERALS) + text[one.end() :]
        else:
            text = text[: one.start()] + random.choice(_PIECES) + text[one.start() :]
        text = text[:500_000]
    return text.encode("utf-8", "surrogatepass")
