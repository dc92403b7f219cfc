"""The benchmark's verdicts come from medians, a missed goal is told, and results survive their file. No stopwatch."""

import time

import psutil
import pytest

from bench import build, common, scale, table
from bench.table import COMPARISONS, Comparison
from press.__main__ import took

RATIO = Comparison("load", "ours", "theirs", 0.5)
BOUND = Comparison("load", "ours", None, 1.0)


def results(**series: list[float]) -> dict:
    where = {"date": "today", "machine": "m", "cores": 2, "load": 0.5, "revision": "abc", "versions": {"torch": "1"}}
    return {"load": {"where": where, "series": series, "notes": ["A note."]}}


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        ([1, 1, 100], True),  # the mean would miss it
        ([0.1, 3, 3], False),  # the best of three would meet it
        ([2, 2], True),  # exactly the goal
        ([2.01], False),
    ],
)
def test_a_ratio_is_that_of_the_medians(ours, met):
    assert RATIO.met({"ours": ours, "theirs": [4, 0.1, 900]}) is met


def test_a_bound_is_held_against_the_median_alone():
    assert BOUND.value({"ours": [5, 0.9, 0.8]}) == 0.9
    assert BOUND.met({"ours": [5, 0.9, 0.8]}) is True
    assert BOUND.met({"ours": [5, 1.1, 0.8]}) is False


def test_no_goal_gives_no_verdict():
    told = Comparison("load", "ours", "theirs")
    assert told.met({"ours": [9], "theirs": [1]}) is None
    assert table.row(told, {"ours": [9], "theirs": [1]})[3:] == ["9", "", ""]


def test_a_missed_goal_is_told_as_missed(monkeypatch):
    monkeypatch.setattr(table, "COMPARISONS", (RATIO, BOUND))
    measured = results(ours=[2.0, 3.0, 4.0], theirs=[4.0])
    ratio, bound = table.rows(measured, "load")
    assert ratio == ["ours", "3.00 s (2.00 s to 4.00 s)", "theirs: 4.00 s", "0.75", "at most 0.5", "**missed**"]
    assert bound[3:] == ["", "at most 1.00 s", "**missed**"]
    assert "0 of 2 goals met" in table.goals(measured)
    assert table.report(measured).count("**missed**") == 2
    met = results(ours=[0.5], theirs=[4.0])
    assert "2 of 2 goals met" in table.goals(met)
    assert "missed" not in table.report(met)


def test_what_was_not_measured_has_no_row(monkeypatch):
    monkeypatch.setattr(table, "COMPARISONS", (RATIO, BOUND))
    assert [line[0] for line in table.rows(results(theirs=[4.0]), "load")] == []
    assert len(table.rows(results(ours=[4.0]), "load")) == 1  # the bound needs no peer
    assert table.rows({}, "load") == []


def test_results_come_back_from_their_file_as_they_were(tmp_path):
    measured = results(ours=[0.1, 1e-9, 538090408], théirs=[1.0])
    table.write(measured, tmp_path / "results.json")
    assert table.read(tmp_path / "results.json") == measured
    assert table.read(tmp_path / "none.json") == {}


def test_a_block_between_marks_is_replaced_and_nothing_else():
    start, end = table.MARKS
    before = f"one\n{start}\nold\n{end}\ntwo\n"
    after = table.between_marks(before, "new")
    assert after == f"one\n{start}\nnew\n{end}\ntwo\n"
    assert table.between_marks(after, "new") == after
    assert table.between_marks("no marks", "new") == "no marks"


def test_the_readme_has_the_marks():
    assert all(table.README.read_text(encoding="utf-8").count(mark) == 1 for mark in table.MARKS)


def test_no_comparison_stands_twice():
    assert len({(c.section, c.ours, c.peer) for c in COMPARISONS}) == len(COMPARISONS)


def test_ways_are_tried_in_turn():
    order: list[str] = []
    ways = {name: lambda name=name: order.append(name) for name in "ABC"}
    found = common.in_turn(ways | {"D": lambda: 7.0}, 2)
    assert order == list("ABCABC")
    assert found["D"] == [7.0, 7.0]
    assert [len(values) for values in found.values()] == [2, 2, 2, 2]


def test_the_exponent_of_growth_is_the_power():
    for power in (0.5, 1, 2):
        assert scale.slope([(n, 3e-6 * n**power) for n in (10, 100, 1000)]) == pytest.approx(power)


def test_every_exponent_that_has_a_goal_is_of_an_axis_that_is_measured():
    named = [c.ours for c in COMPARISONS if c.section == "scale"]
    assert {name.rpartition(" in ")[2] for name in named} == set(scale.AXES)


def test_the_presss_own_account_of_its_seconds_is_read():
    times = {"model": 0.25, "chapters": 61.0, "live pieces": 0.1, "site": 12.34}
    said = f"chapters ...\n  01_x  2.0 s, 700 MB\n\n{took(times)}\nMeasured on ..."
    assert build.took(said) == pytest.approx(times, abs=0.06)


def test_a_command_that_fails_says_what_it_said():
    with pytest.raises(RuntimeError, match="ended with 3:\nalas"):
        common.run(["bash", "-c", "echo alas; exit 3"])


def test_nothing_a_command_started_outlives_it(tmp_path):
    pid = tmp_path / "pid"
    common.run(["bash", "-c", f"sleep 600 >/dev/null 2>&1 & echo $! > {pid}"])
    for _ in range(100):  # a kill is carried out when the machine gets to it
        try:
            if psutil.Process(int(pid.read_text())).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.1)
    pytest.fail("the sleeper is still there")
