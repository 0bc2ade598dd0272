"""Output files are there whole or not at all, with the user's permissions, and never replace what they are read from."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyprof.errors import InputError, UsageError
from pyprof.tables.files import check_output, terminated_by_exception, whole_file, whole_text_file


def test_a_file_appears_whole_with_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_text_file(tmp_path / "a") as stream:
            stream.write("ä\n")
            assert not (tmp_path / "a").exists()
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == "ä\n".encode()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o600)
    with whole_file(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "a").read_text() == "new" and stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(error), whole_text_file(tmp_path / "a") as stream:
        stream.write("half")
        raise error
    assert (tmp_path / "a").read_text() == "old" and os.listdir(tmp_path) == ["a"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")  # which is not there yet
    for text in (b"1", b"2"):
        with whole_file(link) as stream:
            stream.write(text)
        assert link.is_symlink() and (tmp_path / "there" / "file").read_bytes() == text
    assert os.listdir(tmp_path / "there") == ["file"]


def test_pipes_and_devices_are_written_directly(tmp_path: Path) -> None:
    with whole_file(Path(os.devnull)) as stream:
        stream.write(b"x")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    with whole_text_file(fifo) as text:
        text.write("text")
    reader.join()
    assert read == [b"text"] and fifo.is_fifo()


def test_standard_output_under_its_name(tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom pyprof.tables.files import whole_file\nprint('a', flush=True)\n"
    code += "with whole_file(Path('/dev/stdout')) as s: s.write(b'b')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"a\nb"
    log = tmp_path / "log"
    log.write_text("kept\n")
    with log.open("a") as stream:
        subprocess.run([sys.executable, "-c", code], stdout=stream, check=True)
    assert log.read_text() == "kept\na\nb"


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    given = tmp_path / "net.sqlite"
    given.write_text("capture")
    (tmp_path / "symbolic").symlink_to(given)
    os.link(given, tmp_path / "hard")
    for name in ("net.sqlite", "symbolic", "hard"):
        with pytest.raises(UsageError, match="the output is the input"), whole_file(tmp_path / name, [given]):
            pass
    assert given.read_text() == "capture"
    check_output(tmp_path / "other", [given])


def test_a_file_in_a_folder_of_the_input_is_never_the_output(tmp_path: Path) -> None:
    stored = tmp_path / "data" / "rank=0" / "a.parquet"
    stored.parent.mkdir(parents=True)
    stored.write_text("capture")
    (tmp_path / "data" / "table.csv").write_text("of an earlier run")
    with pytest.raises(UsageError, match="the output is part of the input"):
        check_output(stored, [tmp_path / "data"])
    check_output(stored.with_name("b.parquet"), [tmp_path / "data"])
    check_output(tmp_path / "data" / "table.csv", [tmp_path / "data"])


def test_what_keeps_a_file_from_being_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a directory"):
        check_output(tmp_path)
    with pytest.raises(InputError, match="there is no directory"):
        check_output(tmp_path / "no" / "file")
    with pytest.raises(InputError, match="cannot be written: No space left on device"), whole_file(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not os.listdir(tmp_path)
    with (
        pytest.raises(InputError, match="/dev/full: cannot be written: No space left on device"),
        whole_file(Path("/dev/full")) as s,
    ):
        s.write(b"x")
    with pytest.raises(InputError, match="/dev/full: cannot be written"), whole_text_file(Path("/dev/full")) as text:
        text.write("x")


def test_what_a_killed_process_left_goes_and_what_a_running_one_writes_stays(tmp_path: Path) -> None:
    code = "import sys\nfrom pathlib import Path\nfrom pyprof.tables.files import whole_file\n"
    code += "with whole_file(Path('net[1].dict')) as s: print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    running = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    killed = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for process in (running, killed):
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    killed.kill()
    killed.communicate()
    (tmp_path / ".other.1.part").touch()
    assert len(os.listdir(tmp_path)) == 3
    with whole_file(tmp_path / "net[1].dict") as stream:
        stream.write(b"1")
    assert len(os.listdir(tmp_path)) == 3 and (tmp_path / "net[1].dict").read_bytes() == b"1"
    running.communicate()
    assert running.returncode == 0 and sorted(os.listdir(tmp_path)) == [".other.1.part", "net[1].dict"]


def test_sigterm_ends_a_command_as_an_exception_does(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, terminated_by_exception(), whole_file(tmp_path / "a"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143 and not os.listdir(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    with terminated_by_exception():
        thread = threading.Thread(target=lambda: terminated_by_exception().__enter__())
        thread.start()
        thread.join()
