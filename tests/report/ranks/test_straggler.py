"""Which rank is named and why, on jobs whose truth is written down: one reason, one that nearly is, two that compete, none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.report.ranks.advice import Straggler, straggler
from pyprof.report.ranks.survey import survey
from pyprof.report.ranks.units import files_of
from tests import examples
from tests.rank_traces import LAYERS, Steps, gloo


def found(folder: Path) -> Straggler | None:
    whole = survey(files_of([str(folder)]))
    return straggler(whole)


def late(folder: Path) -> Straggler:
    one = found(folder)
    assert one is not None
    return one


def every(rank: int, us: int, steps: int = 3) -> dict[tuple[int, int], int]:
    return {(rank, step): us for step in range(steps)}


def test_a_rank_that_computes_longer_in_a_layer(tmp_path: Path) -> None:
    """2 ms a step more than the others, of which the next-to-last is 0.5 ms late itself: 3 x 1.5 ms are lost by it."""
    one = late(Steps(4, longer={(2, "body"): 2_000, (1, "embed"): 500}).write(tmp_path))
    assert (one.rank, one.second, one.cause, one.layer, one.op) == (2, 1, "compute", "body", "mm")
    assert one.saves_ns == 3 * 1_500_000 and one.last_ns == 2_000_000 and one.second_ns == 500_000
    assert one.time_ns == pytest.approx(3 * (2_000_000 + 2_000_000 + 1_500_000) / 3, abs=3)
    assert (one.collectives, one.met, one.kind, one.step) == (3, 3, "all_reduce", 0)


def test_a_rank_whose_kernels_all_run_longer(tmp_path: Path) -> None:
    one = late(Steps(3, longer={(1, layer): 400 for layer in LAYERS}).write(tmp_path))
    assert (one.rank, one.cause, one.layer, one.op, one.saves_ns) == (1, "compute", None, None, 3 * 1_200_000)
    assert one.meanwhile is not None and "in all layers" in one.meanwhile


def test_a_rank_that_waits_for_what_one_other_sends(tmp_path: Path) -> None:
    """As in a pipeline: the others have nothing of the kind, and it computes no longer than they do."""
    one = late(Steps(3, sent={2: 4_000}).write(tmp_path))
    assert (one.rank, one.cause, one.layer, one.saves_ns) == (2, "communication", None, 12_000_000)


@pytest.mark.parametrize("ranks", [2, pytest.param(64, marks=pytest.mark.slow)])
def test_a_rank_that_loads_data_longer(tmp_path: Path, ranks: int) -> None:
    one = late(Steps(ranks, loading=every(1, 5_000)).write(tmp_path))
    assert (one.rank, one.cause, one.saves_ns) == (1, "host", 15_000_000)
    assert one.meanwhile is not None and "loading data" in one.meanwhile and (one.layer, one.op) == (None, None)


def test_a_rank_whose_host_does_nothing_that_is_recorded(tmp_path: Path) -> None:
    one = late(Steps(3, sleeping=every(0, 5_000)).write(tmp_path))
    assert (one.rank, one.cause, one.saves_ns) == (0, "host", 15_000_000)
    assert one.meanwhile is not None and "Python" in one.meanwhile


def test_ranks_that_only_begin_at_different_times(tmp_path: Path) -> None:
    """Once late, then together: the reason is when they began, and only the 3 ms after the next-to-last are lost."""
    one = late(Steps(4, begin={1: 2_000, 2: 5_000, 3: 8_000}).write(tmp_path))
    assert (one.rank, one.second, one.earliest, one.cause) == (3, 2, 0, "begin")
    assert (one.saves_ns, one.second_ns, one.last_ns, one.step) == (3_000_000, 5_000_000, 8_000_000, 0)
    assert one.entered == ((0, 0), (1, 2_000_000), (2, 5_000_000), (3, 8_000_000))


def test_one_that_began_later_and_loads_longer_once_is_named_after_what_costs_more(tmp_path: Path) -> None:
    one = late(Steps(3, begin={1: 1_000}, loading={(1, 1): 6_000}).write(tmp_path / "loads"))
    assert (one.cause, one.saves_ns, one.step) == ("host", 7_000_000, 1)
    one = late(Steps(3, begin={1: 6_000}, loading={(1, 1): 1_000}).write(tmp_path / "begins"))
    assert (one.cause, one.saves_ns, one.step) == ("begin", 7_000_000, 0)


times = st.lists(st.sampled_from([0, 0, 70, 400, 3_000]), min_size=12, max_size=12)


@settings(max_examples=examples(24), deadline=None)
@given(times, times, times, st.permutations([0, 50_000, -9_000, 7]))
def test_all_that_ranks_are_late_is_saved_once(
    tmp_path_factory: pytest.TempPathFactory, loading: list[int], sleeping: list[int], noise: list[int], clock: list[int]
) -> None:
    """Of 4 ranks and 3 steps that each end together: the sum over steps of what the last comes after the next-to-last."""
    given = [{(n // 3, n % 3): us for n, us in enumerate(column)} for column in (loading, sleeping, noise)]
    job = Steps(4, loading=given[0], sleeping=given[1], noise=given[2], clock=dict(enumerate(clock)))
    came = np.sum([loading, sleeping, noise], axis=0).reshape(4, 3)
    saves = np.zeros(4, np.int64)
    for column in came.T:
        saves[column.argmax()] += 1000 * int(np.diff(np.sort(column))[-1])
    whole = survey(files_of([str(job.write(tmp_path_factory.mktemp("job")))]))
    assert whole.saves.tolist() == saves.tolist()


def test_two_late_ranks_the_one_that_costs_more_is_named(tmp_path: Path) -> None:
    """Rank 1 computes 3 ms longer in each step, rank 2 loads 9 ms longer in one: there 6 ms are lost by it, by rank 1 3 + 3."""
    job = Steps(4, steps=4, longer={(1, "head"): 3_000}, loading={(2, 1): 9_000})
    whole = survey(files_of([str(job.write(tmp_path))]))
    assert whole.saves.tolist() == [0, 9_000_000, 6_000_000, 0]
    one = straggler(whole)
    assert one is not None and (one.rank, one.layer) == (1, "head")
    by_rank = {cause.rank: cause.work for cause in whole.all_causes}
    assert by_rank[1] == ("head", "mm") and by_rank[2][1] == "(launched late)" and by_rank[2][0] == "(data loading)"


def test_what_explains_less_than_a_tenth_is_not_given(tmp_path: Path) -> None:
    """3 ms late at the first collective since it began later; each mm is 20 us longer, as in the steps before the others wait."""
    one = late(Steps(4, steps=1, begin={3: 3_000}, longer={(3, "body"): 100}).write(tmp_path / "near"))
    assert one.cause == "begin" and one.meanwhile is not None and "mm" not in one.meanwhile
    whole = survey(files_of([str(tmp_path / "near")]))
    assert [cause.work[1] for cause in whole.all_causes] == ["(began later)"]


def test_what_comes_after_the_last_collective_is_no_reason(tmp_path: Path) -> None:
    """The rank that computes longer after the collective is late at the next: in a single step it is not late at all."""
    assert found(Steps(3, steps=1, after={1: 5_000}).write(tmp_path / "one")) is None
    one = late(Steps(3, after={1: 5_000}).write(tmp_path / "three"))
    assert (one.rank, one.cause, one.saves_ns, one.step) == (1, "compute", 10_000_000, 1)


def test_without_stragglers_it_is_silent(tmp_path: Path) -> None:
    assert found(Steps(4).write(tmp_path / "equal")) is None
    rng = np.random.default_rng(0)
    few = {(rank, step): int(rng.integers(0, 20)) for rank in range(8) for step in range(12)}
    assert found(Steps(8, steps=12, noise=few).write(tmp_path / "few")) is None
    many = {at: 20 * us for at, us in few.items()}  # each rank is the last now and then, by as much as a layer takes
    assert found(Steps(8, steps=12, noise=many).write(tmp_path / "many")) is None
    two = {(0, 0): 60, (0, 1): 40, (1, 2): 30, (0, 3): 50, (1, 4): 20}  # rank 0 more often and by more, by chance
    assert found(Steps(2, steps=5, noise=two).write(tmp_path / "two")) is None
    one = late(Steps(2, steps=5, noise=two, loading={(1, 2): 3_000}).write(tmp_path / "once"))
    assert (one.rank, one.cause, one.step) == (1, "host", 2)


def test_clocks_ranks_that_are_missing_and_one_rank_alone(tmp_path: Path) -> None:
    job = Steps(4, steps=12, longer={(2, "body"): 2_000}, clock={0: 40_000, 1: -3_000_000, 3: 7})
    one = late(job.write(tmp_path / "clocks"))
    assert (one.rank, one.layer) == (2, "body") and one.saves_ns == pytest.approx(24_000_000, abs=20_000)
    one = late(job.write(tmp_path / "missing", (1, 2)))
    assert (one.rank, one.second, one.ranks, one.layer) == (2, 1, 2, "body")
    assert found(job.write(tmp_path / "alone", (2,))) is None


def test_the_screen_says_who_when_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(Steps(3, begin={1: 2_000, 2: 3_500}).write(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "rank and ms: 0 0.000, 1 2.000, 2 3.500" in out
    assert "3.500 ms after rank 0, 1.500 ms after rank 1, the next-to-last" in out
    assert (
        "saves 1.500 ms" in out
        and "began its recording or step 3.500 ms after the first rank, the others 1.000 ms" in out
        and " mm" not in out
    )


def test_runs_on_the_cpu_are_compared_by_the_time_of_gloos_threads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 loads data for 7 ms more before each of 3 all_reduces; the op that requests one returns at once on both."""
    one = late(gloo(tmp_path / "run", (0, 7_000)))
    assert (one.rank, one.second, one.cause, one.saves_ns, one.kind) == (1, 0, "host", 21_000_000, "all_reduce")
    assert one.meanwhile is not None and "loading data" in one.meanwhile
    assert main(["parse", str(tmp_path / "run"), "-o", str(tmp_path / "set"), "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main(["ranks", str(tmp_path / "set")]) == 0
    captured = capsys.readouterr()
    assert "saves 21.000 ms" in captured.out and "do not say when collectives ended" in captured.err
    assert "nothing recorded explains" in captured.out and "with na" not in captured.out


def test_noisy_ends_do_not_move_clocks_that_their_sessions_know(tmp_path: Path) -> None:
    """gloo's threads leave 3 ms apart on busy CPUs: that is no difference of clocks, one of 50 ms is."""
    gloo(tmp_path / "same", (0, 7_000), leaving=(0, 3_000, 400, 0, 2_500, 100))
    whole = survey(files_of([str(tmp_path / "same")]))
    assert whole.clocks.offset.tolist() == [0, 0] and whole.saves.tolist() == [0, 21_000_000]
    gloo(tmp_path / "other", (0, 7_000), leaving=(0, 3_000, 400, 0, 2_500, 100), ahead=50_000)
    whole = survey(files_of([str(tmp_path / "other")]))
    assert np.diff(whole.clocks.offset)[0] == pytest.approx(50_000_000, abs=3_000_000)
