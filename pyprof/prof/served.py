"""Windows and experts of an inference engine, which its ops do not record, from names and grids of kernels and the model.

vLLM's ops of attention and of experts have neither the window nor the weights among their arguments. Names of kernels say
whether a call had a window, or two times that equal calls take in turns from layer to layer; the grids of TensorRT-LLM's
products how many tiles were launched, and so how many experts each token took and how wide their matrices are, padded to whole
tiles; a model's config.json (Hugging Face) says the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.errors import InputError
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.derived import INFERRED
from pyprof.prof import formulas

ATTENTION = ("vllm::unified_attention", "vllm::unified_attention_with_output")
EXPERTS = ("vllm::moe_forward", "vllm::moe_forward_shared")


class Model(NamedTuple):
    """Sizes of a model; 0: unknown, or the model has none. windowed: whether its layers have the window, None: some do."""

    top_k: int = 0
    hidden: int = 0
    inner: int = 0
    window: int = 0
    windowed: bool | None = False


_used = Model()


def use_model(path: str) -> None:
    """Take sizes from a model's config.json from here on. Raises InputError if it cannot be read or is not one."""
    global _used
    hint = "give the config.json of a model of Hugging Face"
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint) from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON", hint) from error
    if not isinstance(found, dict) or not any(key in found for key in ("hidden_size", "text_config", "n_embd")):
        raise InputError(f"{path}: no configuration of a model", hint)
    _used = read_model(found)


def read_model(found: Mapping[str, Any]) -> Model:
    """Sizes in a config.json."""
    inside = found.get("text_config")
    values = {**found, **inside} if isinstance(inside, dict) else found

    def number(*keys: str) -> int:
        given = (values.get(key) for key in keys)
        return next((value for value in given if isinstance(value, int) and not isinstance(value, bool) and value > 0), 0)

    layers = values.get("layer_types")
    window = number("sliding_window") if values.get("use_sliding_window") is not False else 0
    windowed: bool | None = window > 0
    if window and isinstance(layers, list):
        kinds = {kind == "sliding_attention" for kind in layers}
        windowed = kinds.pop() if len(kinds) == 1 else None
    inner = number("moe_intermediate_size", "intermediate_size")
    top_k = number("num_experts_per_tok", "experts_per_token", "moe_top_k", "num_experts_per_token")
    return Model(top_k, number("hidden_size"), inner, window, windowed)


def infer_served(records: Records) -> Iterator[tuple[OpCall, Ints]]:
    """Yield calls completed by the model in use, and the instances that ran each."""
    for names, complete in ((ATTENTION, _windows), (EXPERTS, _experts)):
        lacks = [call.described and call.name in names and not call.flat for call in records.calls]
        if any(lacks):
            rows = np.flatnonzero(np.array([*lacks, False], np.bool_)[records["call"]] & (records["instance"] >= 0))
            yield from complete(records, rows, _used)


# ---------------------------------------------------------------------------------------------- windows


def has_window(kernel: str) -> bool | None:
    """Whether a kernel of attention looks at a window of the keys; None if its name does not say."""
    if "fmhaSm" in kernel:  # TensorRT-LLM's: the mask is a word
        return True if "SlidingOrChunked" in kernel else False if "Causal" in kernel else None
    if (found := re.search(r"flash_fwd_(splitkv_)?kernel<.*>((?:, *(?:\(bool\)[01]|true|false))+)>", kernel)) is None:
        return None
    flags = re.findall(r"[01]|true|false", found[2])  # FlashAttention 2: [dropout,] causal, local, ...
    at = 1 if found[1] else 2
    return flags[at] in ("1", "true") if len(flags) > at else None


def _windows(records: Records, rows: Ints, model: Model) -> Iterator[tuple[OpCall, Ints]]:
    """Calls with `windowed`, where known, and `window`."""
    pairs, _, inverse = distinct_rows(records["call"][rows], records["name"][rows])
    said = [has_window(records.strings[name]) for name in pairs[1].tolist()]
    told = np.array([value is not None for value in said], np.bool_)[inverse]
    instance = records["instance"][rows]

    def completed(code: int, windowed: bool, *marks: tuple[str, str]) -> OpCall:
        call = records.calls[code]
        size = (("window", model.window),) if windowed and model.window else ()
        return call._replace(kwargs=(*call.kwargs, ("windowed", windowed), *size, *marks))

    for at, (code, _) in enumerate(pairs.T.tolist()):
        mine = inverse == at
        if (windowed := said[at]) is not None and mine.any():
            yield completed(code, windowed), instance[mine]
    rest = rows[~np.isin(instance, instance[told])]
    for code in sorted({*records["call"][rest].tolist()}):
        mine = rest[records["call"][rest] == code]
        windowed = model.windowed if model.hidden else None
        if windowed is not None:
            yield completed(code, windowed), records["instance"][mine]
        elif (short := _short_layers(records, mine)) is not None:
            for windowed, instances in zip((True, False), short, strict=True):
                yield completed(code, windowed, (INFERRED, "windowed")), instances


_LONGER = 1.25  # times that the shortest of the long calls takes the longest of the short ones, at least
_LAYERS = 12  # layers after which a pattern of windows has begun again, at most


def _short_layers(records: Records, rows: Ints) -> tuple[Ints, Ints] | None:
    """Instances of a call with and without a window, by their times; None where these do not tell.

    They do where equal calls take two times, each population narrower than what lies between the two, in a pattern that
    repeats from layer to layer: clocks, caches and neighbours make no such pattern.
    """
    instances, _, inverse = distinct_rows(records["instance"][rows])
    time = summed(inverse, records["dur_ns"][rows], len(instances[0]))
    ordered = np.sort(time)
    if len(time) < 4 or ordered[0] <= 0:
        return None
    steps = ordered[1:] / ordered[:-1]
    at = int(steps.argmax())
    apart = steps[at]
    if apart < max(_LONGER, ordered[at] / ordered[0], ordered[-1] / ordered[at + 1]):
        return None
    begin = np.full(len(time), np.iinfo(np.int64).max)
    np.minimum.at(begin, inverse, records["start_ns"][rows])
    short = time <= ordered[at]
    pattern = short[np.argsort(begin, kind="stable")]
    periods = range(2, min(_LAYERS, len(pattern) // 2) + 1)
    if not any((pattern[n:] == pattern[:-n]).all() and pattern[:n].any() and not pattern[:n].all() for n in periods):
        return None
    return instances[0][short], instances[0][~short]


# ---------------------------------------------------------------------------------------------- experts


class Tiles(NamedTuple):
    """One launch of a product of experts: features and tokens of a tile, and how many tiles of tokens were launched."""

    features: int
    launched: int
    tokens: int
    gated: bool


def tiles_of(kernel: str, grid: tuple[int, int]) -> Tiles | None:
    """The tiles of TensorRT-LLM's `bmm_..._t128x16x256..._transOut_...` of a grid; None for other kernels."""
    found = re.match(r"bmm_\w*?_t(\d+)x(\d+)x\d+", kernel)
    if found is None:
        return None
    sides = [int(found[1]), int(found[2])]
    swapped = "transOut" in kernel  # features are the rows of the product then
    features, tokens = (0, 1) if swapped else (1, 0)
    gated = re.search(r"swi?glu|geglu", kernel, re.IGNORECASE) is not None
    return Tiles(grid[features] * sides[features], grid[tokens], sides[tokens], gated)


def experts_a_token(tokens: int, experts: int, tiles: Tiles) -> int:
    """Experts that each token takes; 0 if the tiles do not tell.

    At most E + (T·k - E)//16 tiles of 16 rows are launched: one for each expert, and the rest all at one of them
    (`getMaxNumCtasInBatchDim` of TensorRT-LLM).
    """
    most = (min(experts, tokens * k) + max(tokens * k - experts, 0) // tiles.tokens for k in range(1, experts + 1))
    fits = [k for k, count in enumerate(most, 1) if count == tiles.launched]
    return fits[0] if len(fits) == 1 else 0


def _experts(records: Records, rows: Ints, model: Model) -> Iterator[tuple[OpCall, Ints]]:
    """Calls with `top_k`, `sizes` (hidden and inner) and whether these are padded."""
    calls = [formulas.evaluate(call).cost.flops is None for call in records.calls]
    rows = rows[np.array([*calls, False], np.bool_)[records["call"][rows]]]
    names, _, inverse = distinct_rows(records["name"][rows])
    tiled = np.array([tiles_of(records.strings[name], (1, 1)) is not None for name in names[0].tolist()], np.bool_)[inverse]
    products = rows[tiled & (records["kind"][rows] == ActivityKind.KERNEL)]
    order = np.lexsort((records["start_ns"][products], records["instance"][products]))
    products = products[order]
    instance = records["instance"][products]
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    pair = first[np.diff(np.append(first, len(instance))) == 2]
    columns = [records[name][products[pair + at]] for at in (0, 1) for name in ("name", "grid_x", "grid_y")]
    done = np.zeros(0, np.int64)
    if len(pair):
        distinct, _, inverse = distinct_rows(records["call"][products[pair]], *columns)
        for at, (code, *values) in enumerate(distinct.T.tolist()):
            ran = [tiles_of(records.strings[n], (x, y)) for n, x, y in (values[:3], values[3:])]
            call = _of_tiles(records.calls[code], ran, model)
            if call is not None:
                mine = instance[pair][inverse == at]
                done = np.append(done, mine)
                yield call, mine
    if model.top_k and model.inner:  # at most these: they may be divided among devices
        rest = rows[~np.isin(records["instance"][rows], done)]
        for code in sorted({*records["call"][rest].tolist()}):
            call = records.calls[code]
            sizes = (("top_k", model.top_k), ("sizes", (model.hidden, model.inner)), ("padded", True))
            yield call._replace(kwargs=(*call.kwargs, *sizes)), records["instance"][rest[records["call"][rest] == code]]


def _of_tiles(call: OpCall, ran: list[Tiles | None], model: Model) -> OpCall | None:
    up, down = ran
    hidden, scores = (*call.args, None, None)[:2]
    if up is None or down is None or not isinstance(hidden, TensorSpec) or not isinstance(scores, TensorSpec):
        return None
    top_k = experts_a_token(hidden.shape[0], scores.shape[-1], up)
    inner = up.features // 2 if up.gated else up.features
    if not top_k or not inner:
        return None
    sizes, padded = (down.features, inner), True
    if model.top_k == top_k and 0 < model.hidden <= down.features:
        parts = next((n for n in (1, 2, 4, 8, 16, 32) if -(-model.inner // n) <= inner), 0)  # of tensor parallelism
        if parts and model.inner % parts == 0:
            sizes, padded = (model.hidden, model.inner // parts), False
    given = (("top_k", top_k), ("sizes", sizes), ("padded", padded), ("gated", up.gated))
    return call._replace(kwargs=(*call.kwargs, *given))
