"""A torch.profiler trace -> the same events, of each what a reader of captures needs, without names of people and machines.

Numbers are kept under every key; texts and lists only under the keys on the list, since programs may add what they like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from pyprof.model.opcall import sound_text
from pyprof.parse.sources.kineto.events import Event, Facts
from pyprof.parse.sources.kineto.trace_file import TraceFile
from pyprof.scrub.identities import Identities

# Arguments of events whose texts are kept, without names.
_TEXTS = {
    "Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs", "Call stack", "Module Hierarchy", "name",
    "kernel", "labels", "Collective name", "dtype", "Process Group Name", "Process Group Description", "Process Group Ranks",
    "kernel_backend", "kernel_file", "kernel_hash", "kernel_kwargs", "grid", "block", "pyprof", "kind", "src", "dst",
    "module_fqn",
}  # fmt: skip
_DEVICE_TEXTS = {"name"}
_PROGRAM = "process_name"  # of an event of metadata: what runs, as the system names it
_PROGRAMS = re.compile(r"python[\d.]*|[CG]PU[ \d]*")
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def scrub_trace(trace: TraceFile, identities: Identities, out: BinaryIO) -> None:
    """Write the events and facts of a trace. Raises InputError if it is damaged."""
    out.write(b'{"traceEvents": [\n')
    separator = b""
    for block in trace.blocks():
        for event in block:
            out.write(separator + _ENCODER.encode(_event(event, identities)))
            separator = b",\n"
    out.write(b"\n]")
    for key, value in _facts(trace.facts, identities):
        out.write(b", " + _ENCODER.encode(key) + b": " + _ENCODER.encode(value))
    out.write(b"}\n")


def _event(event: Event, identities: Identities) -> dict[str, Any]:
    """An event as it is written. Flow events end at what encloses them: the format's `bp`."""
    args = _args(bytes(event.args))
    result: dict[str, Any] = {"ph": event.ph, "cat": event.cat, "name": identities.scrubbed(event.name)}
    if not event.cat:
        del result["cat"]
    if event.name == _PROGRAM and event.ph == "M":
        name = str(args.get("name")) if isinstance(args, dict) else ""
        args = args if _PROGRAMS.fullmatch(name) else {"name": "python"}  # a name that any program has stays
    for key, value in (("pid", event.pid), ("tid", event.tid), ("id", event.id)):
        if value is not None:
            result[key] = identities.scrubbed(value) if isinstance(value, str) else value
    result["ts"] = event.ts
    if event.ph == "X":
        result["dur"] = event.dur
    if event.ph == "f":
        result["bp"] = "e"
    if isinstance(args, dict) and (kept := dict(_kept(args, _TEXTS, identities))):
        result["args"] = kept
    return result


def _args(text: bytes) -> Any:
    """The value of an event's arguments, read leniently where they are not quite JSON; None if they cannot be read."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _kept(values: dict[str, Any], texts: set[str], identities: Identities) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if key in texts:
            yield key, _without_names(value, identities)
        elif value is None or isinstance(value, (bool, int, float)):
            yield identities.scrubbed(sound_text(key)), value
        elif isinstance(value, list) and all(isinstance(item, (int, float)) for item in value):
            yield identities.scrubbed(sound_text(key)), value


def _without_names(value: Any, identities: Identities) -> Any:
    """A value with every text in it, however deep, scrubbed."""
    if isinstance(value, str):
        return identities.scrubbed(sound_text(value))
    if isinstance(value, list):
        return [_without_names(item, identities) for item in value]
    if isinstance(value, dict):
        return {identities.scrubbed(sound_text(key)): _without_names(item, identities) for key, item in value.items()}
    return value


def _facts(facts: Facts, identities: Identities) -> Iterator[tuple[str, Any]]:
    """The facts beside the events: numbers and names of devices, groups of the job."""
    for key in Facts.__struct_fields__:
        value = getattr(facts, key)
        if value is None:
            continue
        if key == "deviceProperties" and isinstance(value, list):
            value = [dict(_kept(one, _DEVICE_TEXTS, identities)) for one in value if isinstance(one, dict)]
        yield key, _without_names(value, identities)
