"""Every formula of another version of pyprof, beside those of this one: costs, pieces, params and reasons of the same calls.

    python scripts/compare_formulas.py OTHER_CHECKOUT [CAPTURE...] [--calls FILE] [--show N] [--only REGEX]

Calls come from torch's op_db (as Python gives them and as the dispatcher gets them, forward and backward), from the
tests of the formulas, and from the captures below the folders that are named (../shared/captures and tests/data where none
is). Collecting takes minutes: with --calls they are written to FILE, and read from it where it is there already. Both versions
evaluate all of them in processes of their own, and calls made poorer from them: without options, as lists of sizes. Prints how
many are equal and the first N that are not, and what the two say of each name (known, is_copy, is_structural, matmul_class);
ends with exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ENDINGS = (".sqlite", ".sql", ".json", ".json.gz")
SAMPLES = 6  # of op_db, an op and dtype
# An OpCall as plain data, so that the classes of the two versions may differ.
_FIELDS = ("module", "op", "args", "kwargs", "dispatcher", "flat", "described")


# ---------------------------------------------------------------------------------------------- collecting


def plain(value: object) -> object:
    """An argument as builtin types."""
    from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec

    if isinstance(value, TensorSpec):
        return {"shape": value.shape, "dtype": value.dtype, "strides": value.strides, "grad": value.grad}
    if isinstance(value, DTypeArg):
        return {"is": value.dtype}
    if value is UNKNOWN:
        return {"unknown": True}
    if isinstance(value, slice):
        return {"slice": (value.start, value.stop, value.step)}
    if isinstance(value, (list, tuple)):
        return [list, *map(plain, value)] if isinstance(value, list) else [tuple, *map(plain, value)]
    return value


def of_captures(paths: list[Path]) -> list[object]:
    """The distinct calls of captures."""
    from pyprof.errors import PyprofError
    from pyprof.loading.load import load

    files = [f for p in paths for f in (sorted(p.rglob("*")) if p.is_dir() else [p]) if f.name.endswith(ENDINGS)]
    calls: list[object] = []
    for file in files:
        try:
            calls += load(str(file)).calls
        except PyprofError as error:
            print(f"left out: {error}", file=sys.stderr)
    return calls


def of_op_db() -> list[object]:
    """Calls of torch's samples of all of its ops, with what autograd runs of them."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils._pytree import tree_leaves

    from tests.prof.formulas.formula_oracles import Called, Dispatched

    torch.manual_seed(0)
    calls: list[object] = []
    for op in op_db:
        for dtype in (torch.float32, torch.int64, torch.complex64):
            if not op.supports_dtype(dtype, "cpu"):
                continue
            grads = dtype is torch.float32 and op.supports_autograd
            for _, sample in zip(
                range(SAMPLES), op.sample_inputs(torch.device("cpu"), dtype, requires_grad=grads), strict=False
            ):
                called, ran = Called(), Dispatched()
                try:
                    with ran, called:
                        made = op(sample.input, *sample.args, **sample.kwargs)
                    if grads:
                        floats = [x for x in tree_leaves(made) if isinstance(x, torch.Tensor) and x.requires_grad]
                        with ran:
                            torch.autograd.backward([x.sum() for x in floats if not x.is_complex()])
                except Exception as error:  # not all samples run everywhere
                    print(f"{op.name}: {type(error).__name__}", file=sys.stderr)
                calls += [*called.calls, *ran.calls]
    return calls


class _Recorder:
    """A plugin of pytest that keeps what the tests evaluate."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def wrap(self, module: object, name: str) -> None:
        function = getattr(module, name)

        def recorded(call: object) -> object:
            self.calls.append(call)
            return function(call)

        setattr(module, name, recorded)


def of_tests() -> list[object]:
    """Calls that the tests of formulas and costs evaluate, but for random ones."""
    import pytest

    from pyprof.prof import formulas
    from pyprof.prof.formulas import registry

    recorder = _Recorder()
    for module in (formulas, registry):
        for name in ("evaluate", "evaluate_backward", "params"):
            recorder.wrap(module, name)
    where = [str(HERE / "tests" / "prof" / name) for name in ("formulas", "test_cost.py", "test_infer.py")]
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "--no-header", "-W", "ignore", "-k", "not nothing_that_a_file_may_hold", *where]
    )
    return recorder.calls


def collect(captures: list[Path]) -> list[tuple[object, ...]]:
    """Distinct calls as plain data, in a fixed order; further ones of each with less recorded."""
    from pyprof.model.opcall import OpCall

    found: dict[str, tuple[object, ...]] = {}
    counts = Counter[str]()
    for source, calls in (("tests", of_tests()), ("captures", of_captures(captures)), ("op_db", of_op_db())):
        for call in calls:
            if not isinstance(call, OpCall):
                continue
            data = tuple(plain(getattr(call, field)) for field in _FIELDS)
            if data[2][0] is list:  # a test may give a list of arguments
                data = (*data[:2], [tuple, *data[2][1:]], *data[3:])
            if len(key := repr(data)) < 20_000 and "mymod" not in key and key not in found:
                found[key] = data
                counts[source] += 1
    print(", ".join(f"{count} of {source}" for source, count in counts.items()), file=sys.stderr)
    return [found[key] for key in sorted(found)]


# ---------------------------------------------------------------------------------------------- evaluating


def live(value: object) -> object:
    """What `plain` made plain."""
    from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec

    if isinstance(value, dict):
        if "shape" in value:
            return TensorSpec(**value)
        if "slice" in value:
            return slice(*value["slice"])
        return DTypeArg(value["is"]) if "is" in value else UNKNOWN
    if isinstance(value, list):
        return value[0](map(live, value[1:]))
    return value


def variants(call: object) -> list[object]:
    """The call as recorded; by tensors alone as emit_nvtx has it; with options unknown, as old traces have it."""
    from pyprof.model.opcall import UNKNOWN, TensorSpec

    fields = {name: getattr(call, name) for name in _FIELDS}
    made = [call]
    if call.args and call.dispatcher and not call.flat:
        kept = tuple(a if isinstance(a, (TensorSpec, list, tuple, type(None))) else UNKNOWN for a in call.args)
        items = [[a] if isinstance(a, TensorSpec) else a for a in call.args if isinstance(a, (TensorSpec, list, tuple))]
        flat = tuple(TensorSpec(x.shape) for item in items for x in item if isinstance(x, TensorSpec))
        rest = [UNKNOWN for a in call.args if not isinstance(a, (TensorSpec, list, tuple))]
        poorer = ({"args": kept}, {"args": (*flat, *rest), "flat": True}, {"args": flat, "flat": True})
        made += [*(type(call)(**{**fields, **new}) for new in poorer)]
    return made


def evaluate_all(calls_file: Path, out_file: Path) -> None:
    """Write what this process's pyprof says of the calls."""
    from pyprof.model.opcall import OpCall
    from pyprof.prof import formulas

    warnings.simplefilter("ignore")
    given = pickle.loads(calls_file.read_bytes())
    results, names = {}, set(formulas.names())
    for data in given["calls"]:
        recorded = OpCall(**dict(zip(_FIELDS, map(live, data), strict=True)))
        names.add(recorded.name)
        for index, call in enumerate(variants(recorded)):
            cost, reason = formulas.evaluate(call)
            pieces = tuple((p.name, *_of(p.cost)) for p in formulas.evaluate_backward(call))
            said = (*_of(cost), reason, pieces, formulas.params(call), formulas.gives_way(call), formulas.moves(call))
            results[f"{'recorded tensors flat bare'.split()[index] if index else ''} {call.name} {call}"] = said
    rules = (formulas.known, formulas.is_copy, formulas.is_structural, formulas.matmul_class, has_backward)
    told = {name: tuple(rule(name) for rule in rules) for name in sorted(names | given.get("names", set()))}
    out_file.write_bytes(pickle.dumps({"results": results, "names": told, "file": formulas.__file__}))


def has_backward(name: str) -> bool:
    """Whether a name has a formula of its backward, in either way of declaring one."""
    from pyprof.prof.formulas import registry

    return registry.has_backward(name) if hasattr(registry, "has_backward") else name in registry._BACKWARD


def _of(cost: object) -> tuple[object, ...]:
    return tuple(getattr(cost, name) for name in ("matmul_flops", "vector_flops", "bytes", "mnk", "batch", "params"))


def evaluated(checkout: Path, calls: Path, folder: Path) -> dict[str, dict[str, tuple[object, ...]]]:
    """What the formulas of a checkout say."""
    out = folder / f"{abs(hash(checkout))}.pickle"
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run([sys.executable, __file__, "--evaluate", str(calls), str(out)], env=env, check=True)
    made: dict[str, dict[str, tuple[object, ...]]] = pickle.loads(out.read_bytes())
    assert str(made["file"]).startswith(str(checkout)), made["file"]
    return made


# ---------------------------------------------------------------------------------------------- comparing

_PARTS = (
    "matmul_flops",
    "vector_flops",
    "bytes",
    "mnk",
    "batch",
    "params text",
    "reason",
    "pieces",
    "params",
    "gives_way",
    "moves",
)


def needs_fewer(key: str, old: tuple[object, ...], new: tuple[object, ...]) -> bool:
    """Whether, of a call made poorer here, the older version only lacked an argument that a newer formula does not name.

    Nothing that the older one knew may be unknown or another number: costs (the first four parts), params, pieces.
    """
    if key.startswith(" ") or not str(old[6]).endswith("not recorded"):
        return False
    return all(before in (None, "", (), after) for before, after in zip((*old[:6], old[7]), (*new[:6], new[7]), strict=True))


def compare(
    old: dict[str, dict[str, tuple[object, ...]]], new: dict[str, dict[str, tuple[object, ...]]], only: str, show: int
) -> int:
    """Print what differs; how much does."""
    apart = 0
    by_op = Counter[str]()
    for what, parts in (("results", _PARTS), ("names", ("known", "is_copy", "is_structural", "matmul_class", "has backward"))):
        keys = [k for k in sorted(old[what].keys() | new[what].keys()) if re.search(only, k)]
        absent = (None,) * len(parts)
        different = [k for k in keys if old[what].get(k, absent) != new[what].get(k, absent)]
        fewer = [k for k in different if what == "results" and needs_fewer(k, old[what][k], new[what][k])]
        different = sorted(set(different).difference(fewer))
        for key in different[:show]:
            print(key[:300])
            for part, a, b in zip(parts, old[what].get(key, absent), new[what].get(key, absent), strict=True):
                if a != b:
                    print(f"    {part}: {a} -> {b}")
        by_op.update(key.split()[0 if what == "names" or key.startswith(" ") else 1] for key in different)
        print(f"{what}: {len(keys) - len(different) - len(fewer)} of {len(keys)} equal, {len(fewer)} need fewer arguments")
        apart += len(different)
    if apart:
        print("by op:", ", ".join(f"{op} {count}" for op, count in by_op.most_common()))
    return apart


def main() -> int:
    """Collect, evaluate in both, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="folder of the other version")
    parser.add_argument("captures", type=Path, nargs="*", help="captures, or folders of them")
    parser.add_argument("--calls", type=Path, help="file that keeps the calls")
    parser.add_argument("--only", default="", help="names or texts of calls, a regular expression")
    parser.add_argument("--show", type=int, default=10, help="how many differences are printed")
    parser.add_argument("--evaluate", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.evaluate:
        evaluate_all(*options.evaluate)
        return 0
    if options.other is None:
        parser.error("the other version's folder is needed")
    with tempfile.TemporaryDirectory() as name:
        calls = options.calls or Path(name) / "calls.pickle"
        if not calls.exists():
            sys.path.insert(0, str(HERE))
            folders = options.captures or [HERE.parent / "shared" / "captures", HERE / "tests" / "data"]
            calls.write_bytes(pickle.dumps({"calls": collect(folders)}))
        old, new = (evaluated(checkout.resolve(), calls, Path(name)) for checkout in (options.other, HERE))
    return 1 if compare(old, new, options.only, options.show) else 0


if __name__ == "__main__":
    sys.exit(main())
