"""CSV of Nsight Compute in the variants that its versions and options write."""

import csv
import gzip
import io
import math
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.loading.load import load_counters
from pyprof.parse.sources.measured.launches import Measured, joined
from pyprof.parse.sources.measured.ncu_csv import is_ncu_csv, read

_BEFORE = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
_RULES = '"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"'
_DETAILS = f'{_BEFORE},"Section Name","Metric Name","Metric Unit","Metric Value",{_RULES}'


def launch(number: int, name: str = "k", pid: int = 7) -> str:
    return f'"{number}","{pid}","python","host","{name}","1","13","(128, 1, 1)","(152, 4, 1)","0","9.0"'


def measured(text: str) -> Measured:
    return read(io.StringIO(text), "net.csv")


def value(found: Measured, metric: str, row: int = 0) -> float | None:
    number = float(found.of(metric)[row])
    return None if math.isnan(number) else number


def test_raw_page() -> None:
    found = measured(
        f'{_BEFORE},"dram__bytes_read.sum","gpu__time_duration.sum","sm__x.sum","device__attribute_display_name"\n'
        '"","","","","","","","","","","","Mbyte","usecond","inst",""\n'
        f'{launch(0, "void f<int, 4>(float *)")},"4.195712","31.872000","","NVIDIA H200"\n'
        f'{launch(1)},"0.000032","1.5","n/a","NVIDIA H200"\n'
    )
    assert [one.name for one in found.launches] == ["void f<int, 4>(float *)", "k"]
    first = found.launches[0]
    assert (first.grid, first.block, first.pid, first.device, first.stream) == ((152, 4, 1), (128, 1, 1), 7, 0, 13)
    assert first.cc == "9.0" and found.gpus == {0: "NVIDIA H200"}
    assert value(found, "dram__bytes_read.sum") == 4_195_712 and value(found, "dram__bytes_read.sum", 1) == 32
    assert value(found, "gpu__time_duration.sum") == 31_872 and value(found, "gpu__time_duration.sum", 1) == 1_500
    assert value(found, "sm__x.sum") is None and value(found, "sm__x.sum", 1) is None and value(found, "nothing") is None


def test_details_page_with_rules_labels_and_output_of_the_program() -> None:
    found = measured(
        "step 1, loss 2.5\n"
        '==PROF== Connected to process 7\n"quoted" line of the program\n'
        f"{_DETAILS}\n"
        f'{launch(0)},"GPU Speed Of Light Throughput","Memory Throughput","%","19.66",\n'
        f'{launch(0)},"Memory Workload Analysis","Memory Throughput","Gbyte/s","345.14",\n'
        f'{launch(0)},"Command line profiler metrics","flop_count_sp.sum","","n/a",\n'
        f'{launch(0)},"Command line profiler metrics","dram__bytes_write.sum","Kbyte","1,024.5",\n'
        f'{launch(0)},"A Section To Come","New Thing","warp","3",\n'
        f'{launch(0)},"Occupancy","","","","TheoreticalOccupancy","OPT","Two lines,\nwith a ""word"", 1.5","global","80.34"\n'
        "step 2, loss 2.25\n"
        f'{launch(1)},"GPU Speed Of Light Throughput","Duration","us","6.75",\n'
    )
    assert len(found) == 2
    assert value(found, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed") == 19.66
    assert value(found, "dram__bytes.sum.per_second") == 345.14e9
    assert value(found, "flop_count_sp.sum") is None
    assert value(found, "dram__bytes_write.sum") == 1_024_500
    assert value(found, "A Section To Come: New Thing") == 3
    assert value(found, "gpu__time_duration.sum", 1) == 6_750 and value(found, "gpu__time_duration.sum") is None


@pytest.mark.parametrize("label", ["dram__bytes.sum", "DRAM Bytes dram__bytes.sum", "DRAM Bytes (dram__bytes.sum)"])
def test_names_of_metrics_as_the_options_print_them(label: str) -> None:
    found = measured(f'{_DETAILS}\n{launch(0)},"Section","{label}","byte","5",\n')
    assert value(found, "dram__bytes.sum") == 5


def test_an_old_version_without_grid_block_and_device() -> None:
    found = measured(
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","Section Name",'
        '"Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","python","host","k","2021-Jan-01 10:00:00","1","7","S","gpu__time_duration.sum","nsecond","1,075"\n'
    )
    one = found.launches[0]
    assert (one.grid, one.block, one.device, one.cc) == (None, None, -1, "")
    assert value(found, "gpu__time_duration.sum") == 1_075


def test_a_european_locale() -> None:
    rows = [("dram__bytes.sum", "byte", "27.595.520"), ("gpu__time_duration.sum", "us", "65,77"), ("x__y.sum", "", "1.234")]
    lines = "".join(f'{launch(0)},"S","{metric}","{unit}","{text}",\n' for metric, unit, text in rows)
    for text in (_DETAILS + "\n" + lines, (_DETAILS + "\n" + lines).replace('","', '";"').replace('",\n', '";\n')):
        found = measured(text)
        assert value(found, "dram__bytes.sum") == 27_595_520
        assert value(found, "gpu__time_duration.sum") == 65_770
        assert value(found, "x__y.sum") == 1_234


def test_several_runs_in_one_file() -> None:
    one = f'{_DETAILS}\n{launch(0, "a")},"S","x__y.sum","","1",\n'
    two = f'==PROF== Connected\n{_BEFORE},"x__y.sum"\n"","","","","","","","","","","",""\n{launch(0, "b")},"2"\n'
    found = measured(one + two + f'{_DETAILS}\n{launch(0, "c", pid=8)},"S","x__y.sum","","3",\n')
    assert [launch.name for launch in found.launches] == ["a", "b", "c"]
    assert found.of("x__y.sum").tolist() == [1, 2, 3]


def test_what_a_program_prints_is_no_launch() -> None:
    """Not a table of its own, not half a quotation, and not the table of GPUs that the details page of ncu holds."""
    printed = '1,100,0.5,0.9,0.001,3\n,,,\n3,"half\n"0","Quadro P620","0","0-15","0"\n"2","7","only"\n'
    found = measured(
        f'{printed}{_BEFORE},"x__y.sum"\n{printed}"","","","","","","","","","","","K"\n{printed}{launch(0)},"1"\n{printed}'
    )
    assert len(found) == 1 and found.of("x__y.sum").tolist() == [1]
    found = measured(f'{_DETAILS}\n"4","7","p\n{launch(1)},"S","x__y.sum","Kbyte","1",\n{printed}')
    assert len(found) == 1 and found.of("x__y.sum").tolist() == [1000]


def test_a_row_without_quotes_or_between_tabs() -> None:
    rows = [["ID", "Process ID", "Kernel Name", "Grid Size", "x__y.sum"], ["", "", "", "", "Kbyte"]]
    rows.append(["0", "7", "k<1, 2>", "(1, 2, 3)", "1.5"])
    for delimiter in ",\t;":
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter).writerows(rows)
        found = measured(text.getvalue())
        assert found.of("x__y.sum").tolist() == [1500] and found.launches[0].grid == (1, 2, 3)


def test_the_same_number_twice() -> None:
    """Files put one after another may lack the second header."""
    raw = f'{_BEFORE},"x__y.sum"\n{"," * 11}\n{launch(0)},"1"\n{launch(0)},"2"\n'
    assert measured(raw).of("x__y.sum").tolist() == [1, 2]
    details = [f'{launch(0, name)},"S","x__y.sum","","{value}",\n' for name, value in (("a", 1), ("b", 2), ("a", 3))]
    found = measured(f"{_DETAILS}\n{''.join(details)}")
    assert [one.name for one in found.launches] == ["a", "b"] and found.of("x__y.sum").tolist() == [1, 2]


def test_files_of_one_run() -> None:
    """Other metrics of the same launches are more columns; another process's launches are more rows."""
    one, two, other = (
        measured(f'{_DETAILS}\n{launch(0, pid=pid)},"S","{metric}","","{pid}",\n{launch(1, pid=pid)},"S","{metric}","","2",\n')
        for pid, metric in ((7, "x__y.sum"), (7, "x__z.sum"), (8, "x__y.sum"))
    )
    together, rows = joined([one, two, other])
    assert [(launch.pid, launch.number) for launch in together.launches] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert together.of("x__y.sum").tolist() == [7, 2, 8, 2] and together.of("x__z.sum")[:2].tolist() == [7, 2]
    assert [of.tolist() for of in rows] == [[0, 1], [0, 1], [2, 3]]


def test_a_file_that_ends_too_early() -> None:
    whole = f'{_BEFORE},"x__y.sum","x__z.sum"\n{"," * 12}\n{launch(0)},"12","34"\n{launch(1)},"56","78"\n'
    found = measured(whole[:-4])  # within 78
    assert len(found) == 1
    found = measured(whole[: whole.rindex(",")])
    assert value(found, "x__y.sum", 1) == 56 and value(found, "x__z.sum", 1) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_and_compression(tmp_path: Path, encoding: str) -> None:
    text = f'a\r\n{_BEFORE},"x__y.sum"\r\n{"," * 11}\r\n{launch(0)},"1"\r\n'
    for name, packed in (("net.csv", text.encode(encoding)), ("net.csv.gz", gzip.compress(text.encode(encoding)))):
        (tmp_path / name).write_bytes(packed)
        assert load_counters(str(tmp_path / name))[0].of("x__y.sum").tolist() == [1]
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress((text + "noise " * 10_000).encode(encoding))[:-9])
    with pytest.raises(InputError, match="damaged gzip"):
        load_counters(str(tmp_path / "cut.csv.gz"))


def test_more_output_before_the_header_than_a_file_is_known_by(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text("loss 0.5\n" * 200_000 + f'{_BEFORE},"x__y.sum"\n{launch(0)},"1"\n')
    assert len(load_counters(str(path))[0]) == 1


def test_nvtx_ranges_and_a_marker_of_ours_from_outside_in() -> None:
    marker = 'linear(fp32[64,1024], None) #pyprof{"mod":"torch.nn.functional","src":"net.py:42"}'
    header = _BEFORE.replace(
        '"Kernel Name"', '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name"'
    )
    names = ("step 3", marker, 'say "x" now', "mine:{'op': 'mm'}")
    ranges = "  ".join(f'"{"" if ":" in name[:5] else "<default domain>:"}{name}{":none" * 6}"' for name in names)
    cell = f"1  {ranges}".replace('"', '""')
    found = measured(f'{header},"x__y.sum"\n' + launch(0).replace('"host",', f'"host","{cell}",') + ',"1"\n')
    assert found.launches[0].scopes == names


_OF_A_RANGE = "PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_TWO_NVTX = _BEFORE.replace(
    '"Kernel Name"', f'"thread Domain:Push/Pop_Range:{_OF_A_RANGE}","Id:Domain:Start/Stop_Range:{_OF_A_RANGE}","Kernel Name"'
)
_NONE = ":none" * 6


def nvtx_launch(number: int, pushed: str, started: str = "", value: int = 1) -> str:
    """A row as ncu writes it: the cells' own quotes doubled, those of the ranges' names as they are."""
    return launch(number).replace('"host",', f'"host","{pushed}","{started}",') + f',"{value}"\n'


def test_quotes_of_a_name_that_ncu_writes_as_they_are() -> None:
    ours = 'linear(fp32[64,1024]) #pyprof{"mod":"torch.nn.functional","src":"net.py:42"}'
    ends = 'a","b","c'  # what would end a cell
    rows = [
        nvtx_launch(0, f'7  ""<default domain>:step 3{_NONE}""  ""<default domain>:{ours}{_NONE}""', value=1),
        nvtx_launch(1, f'7  ""<default domain>:{ends}{_NONE}""', f'5  ""mine:{ends}{_NONE}""', value=2),
        nvtx_launch(2, "", f'5  ""mine:{ours}{_NONE}""', value=3),
        nvtx_launch(3, f'7  ""<default domain>:one " alone{_NONE}""', value=4),
        nvtx_launch(4, "", value=5),
    ]
    found = measured(f'{_TWO_NVTX},"x__y.sum"\n{"," * 13}\n{"".join(rows)}')
    assert found.of("x__y.sum").tolist() == [1, 2, 3, 4, 5]
    assert {(one.name, one.grid, one.stream) for one in found.launches} == {("k", (152, 4, 1), 13)}
    assert found.launches[0].scopes == ("step 3", ours) and found.launches[4].scopes == ()


def test_a_row_with_more_cells_than_columns_is_refused() -> None:
    """Its numbers would be those of other columns."""
    shifted = launch(0).replace('"k"', '"k","of","a","name"')
    with pytest.raises(InputError, match="15 cells in a row of 12 columns"):
        measured(f'{_BEFORE},"x__y.sum"\n{"," * 11}\n{shifted},"7"\n{launch(1)},"1"\n')


def test_what_is_no_table_of_launches() -> None:
    assert is_ncu_csv(f"loss 1\n{_DETAILS}\n") and not is_ncu_csv('"ID","Name"\n1,2\n')
    with pytest.raises(InputError, match="no launch was measured"):
        measured(f"{_DETAILS}\n==PROF== no kernels\n")
    with pytest.raises(InputError, match="sums over launches"):
        measured(f'{_BEFORE},"Invocations","Metric Name","Metric Unit","Average"\n{launch(0)},"3","x__y.sum","","1"\n')


def test_both_kinds_of_csv_of_a_real_kernel_agree(captures: Path) -> None:
    files = sorted((captures / "ncu" / "rtx5090_details").glob("*.details.csv"))
    assert len(files) == 10
    for file in files:
        other = file.with_name(file.name.replace("details", "metrics"))
        with file.open() as one, other.open() as two:
            details, metrics = read(one, "one"), read(two, "two")
        both = set(details.metrics) & set(metrics.metrics)
        assert len(both) == 9
        for metric in both:
            assert value(details, metric) == value(metrics, metric)
        with file.open() as stream:
            rows = [row for row in csv.DictReader(stream) if row["Metric Name"]]
        # `Duration` and a percentage each are printed again under their metric's own name.
        assert len(details.metrics) == len(rows) - 2
        assert not [metric for metric in details.metrics if ": " in metric]


def test_numbers_of_thousands_of_digits_are_unknown() -> None:
    most = "9" * 5000
    row = launch(0).replace('"7"', f'"{most}"').replace("152", most).replace('"9.0"', f'"{most}.0"')
    found = measured(f'{_BEFORE},"x__y.sum"\n{row},"5"\n')
    (one,) = found.launches
    assert (one.pid, one.grid, one.block) == (-1, None, (128, 1, 1)) and value(found, "x__y.sum") == 5


def test_a_text_that_never_ends_is_gone_over_once() -> None:
    with pytest.raises(InputError, match="no launch"):  # in time that grows with the square of the lines this would take hours
        measured(f'{_BEFORE},"x__y.sum"\n"0","7","python","host","k' + "\n" * 1_000_000)


def test_a_header_with_a_long_cell_and_a_line_that_is_no_csv() -> None:
    found = measured(f'{_BEFORE},"{"x" * 200_000}","x__y.sum"\n{launch(0)},"","5"\n')
    assert value(found, "x__y.sum") == 5
    with pytest.raises(InputError, match="not CSV as ncu writes it"):
        measured(f'{_BEFORE},"x__y.sum"\n{launch(0)},5\r6\n')
