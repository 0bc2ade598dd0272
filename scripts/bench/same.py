"""Whether another version of pyprof writes the same bytes: prof, summary, gaps, ranks and report of files, of two checkouts.

    python scripts/bench/same.py FILE... --before CHECKOUT [--quick]

FILE is whatever pyprof reads; a folder is a job's ranks. Captures are parsed to Parquet by the other checkout first, so that
both read the same records. Prints each command whose output or messages differ, and how many there were; exit code 1 where any
does. Parquet is compared by what it holds. --quick: fewer commands, for long files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
_FORMATS = ("csv", "jsonl", "parquet", "plain", "markdown", "json", "table")
_PROF = (
    "--kinds all --csv", "--group-by op,shape --csv", "--group-by kernel,phase --format jsonl -c kernel,phase,GROUPS",
    "--group-by layer --format json", "--group-by family,device,stream --csv -c family,GROUPS", "--tree layer",
    "--tree layer --csv -c layer,depth,GROUPS", "--where sil>5us,op=*mm* --csv -c COLS", "--where phase=backward -w 200",
    "--where peak<50 --sort lost --top 30 -c COLS --format jsonl", "--sort sil --top 40 -c COLS --csv", "--sort op,start --csv",
    "--top 7 -c COLS", "--step 1:3 --csv -c COLS", "--time 10ms:200ms --csv -c COLS", "--gpu H100 --csv -c COLS",
    "--kinds memcpy,kernel --csv -c COLS", "--where seq>3 --csv -c seq,altseq,idx", "--group-by op --kinds all --csv",
)  # fmt: skip
_LONG = ("--group-by op,shape --csv -c op,params,GROUPS", "--tree layer --csv", "--where op=*mm*,sil>5us --csv --top 9 -c COLS",
         "--sort lost --top 50 -c COLS --csv")  # fmt: skip
_OTHERS = (
    "summary FILE --format json", "summary FILE", "summary FILE --step 1:2 --format json", "summary FILE --time 5ms:60ms",
    "gaps FILE --format json", "gaps FILE --stream --format json", "gaps FILE --step 1:3", "report FILE -o OUT.html",
)  # fmt: skip
_QUICK = ("summary FILE --format json", "gaps FILE --format json", "report FILE -o OUT.html")
_CODE = """
import contextlib, hashlib, io, json, os, sys
from pyprof.cli import main
from pyprof.prof.columns import COLUMNS, SUMS
columns, groups = (",".join(one.key for one in some) for some in (COLUMNS, SUMS))

def of_parquet(name):
    import pyarrow as pa, pyarrow.csv, pyarrow.parquet
    file, digest = pyarrow.parquet.ParquetFile(name), hashlib.sha256()
    digest.update(repr(file.schema_arrow).encode())
    for batch in file.iter_batches(1 << 14):
        lists = [column for column, field in zip(batch.columns, batch.schema) if pa.types.is_list(field.type)]
        digest.update(repr([column.to_pylist() for column in lists]).encode())
        others = [field.name for field in batch.schema if not pa.types.is_list(field.type)]
        text = io.BytesIO()
        pyarrow.csv.write_csv(batch.select(others), text)
        digest.update(text.getbuffer())
    return digest.digest()


found = {}
for line in json.load(sys.stdin):
    with open("out", "w+b") as out:
        words = [word.replace("COLS", columns).replace("GROUPS", groups) for word in line]
        text, said = io.TextIOWrapper(out, "utf-8", newline=""), io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(said):
            try:
                code = main(words)
            except SystemExit as error:
                code = error.code
            text.flush()
        out.seek(0)
        digest = hashlib.sha256(f"{code} {said.getvalue()}".encode())
        digest.update(hashlib.file_digest(out, "sha256").digest())
        text.detach()
    for name in sorted(os.listdir(".")):
        if name == "OUT":
            digest.update(of_parquet(name))
        elif name != "out":
            with open(name, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        if name != "out":
            os.unlink(name)
    found[" ".join(line)] = digest.hexdigest()
json.dump(found, sys.stdout)
"""


def commands(file: str, quick: bool) -> list[list[str]]:
    """What is compared of a file."""
    if Path(file).is_dir():
        return [["ranks", file, "--format", "json"], ["ranks", file], ["summary", file, "--format", "json"]]
    prof = [["prof", file, "--format", form, "-c", "COLS", *(["-o", "OUT"] * (form == "parquet"))] for form in _FORMATS]
    prof = prof[:3] if quick else prof
    prof += [["prof", file, *words.split()] for words in (_LONG if quick else _PROF)]
    return prof + [[file if word == "FILE" else word for word in words.split()] for words in (_QUICK if quick else _OTHERS)]


def outputs(checkout: Path, lines: list[list[str]]) -> dict[str, str]:
    """A digest of what each command writes and says, with the pyprof of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    with tempfile.TemporaryDirectory() as folder:
        command, given = [sys.executable, "-c", _CODE], json.dumps(lines)
        run = subprocess.run(command, input=given, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    found: dict[str, str] = json.loads(run.stdout)
    return found


def parsed(file: str, checkout: Path, folder: Path) -> str:
    """The file, or what parse makes of a capture."""
    path = Path(file).resolve()
    if path.is_dir() or path.suffix == ".parquet":
        return str(path)
    made = folder / f"{hashlib.sha256(str(path).encode()).hexdigest()[:8]}-{path.name}.parquet"
    command = [sys.executable, "-m", "pyprof", "parse", str(path), "-o", str(made)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run(command, cwd=checkout, env=environment, stderr=subprocess.DEVNULL, check=True)
    return str(made)


def main() -> int:
    """Run both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="+")
    parser.add_argument("--before", metavar="CHECKOUT", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    before = options.before.resolve()
    with tempfile.TemporaryDirectory() as folder:
        files = [parsed(file, before, Path(folder)) for file in options.file]
        lines = [line for file in files for line in commands(file, options.quick)]
        first, second = outputs(before, lines), outputs(HERE, lines)
    differing = [line for line in first if first[line] != second[line]]
    print("\n".join([*differing, f"{len(first)} outputs, {len(differing)} differ"]))
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
