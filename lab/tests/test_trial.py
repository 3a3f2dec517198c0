"""`ebb-lab trial`: intervals are honest, a breach stops it, what is finished is not done again."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from machine import Machine
from simulated import DESIGN, PERIOD_S, Server

from ebb_lab import cli
from ebb_lab.errors import LabError, WorkError
from ebb_lab.trial import course, design, judging, telling
from ebb_lab.trial.course import Course
from ebb_lab.trial.design import Design
from ebb_lab.trial.judging import Difference
from ebb_lab.trial.running import Ebb, Ending, Interrupted
from ebb_lab.trial.watching import Unfit

SCHEMA = Path(__file__).parents[2] / "docs" / "json-schema" / "lab-trial-1.json"
TRIALS = 100


def go(server: Server, folder: Path, asked: Design = DESIGN) -> Course:
    return course.run(asked, folder, server, clock=server.time)


def differences(done: Course) -> dict[str, Difference]:
    return {each.name: each for each in judging.judge(done).differences}


@pytest.mark.parametrize("effect", [(0.0, 0.0), (-8.0, 0.03)], ids=["none", "some"])
def test_intervals_cover_what_is_true(effect: tuple[float, float], tmp_path: Path) -> None:
    """The policy's onset is over after the wash-out to 2 %; noise hangs together for longer than
    a block; power drifts by more than the effect."""
    covered, shown, width = np.zeros(2), np.zeros(2), np.zeros(2)
    for seed in range(TRIALS):
        server = Server(seed, effect_w=effect[0], effect_ms=effect[1])
        found = differences(
            go(server, tmp_path / str(seed), dataclasses.replace(DESIGN, seed=seed))
        )
        for at, name in enumerate(("watts", "latency_mean_ms")):
            interval = found[name].difference
            assert interval
            covered[at] += interval.low <= effect[at] <= interval.high
            shown[at] += found[name].shown
            width[at] += (interval.high - interval.low) / TRIALS
    assert (covered >= 92).all(), covered
    # An interval that always covers is too wide: noise of a block's mean is about 5 W and
    # 0.017 ms, so that 10 pairs leave 2 * 2.3 * 5 * sqrt(2 / 10) W at most.
    assert (covered <= 99).all(), covered
    assert (width < [10.0, 0.035]).all(), width
    if effect[0]:
        assert (shown >= 95).all(), shown
    else:
        assert (shown <= 8).all(), shown


def test_a_steady_drift_moves_nothing_and_is_told(tmp_path: Path) -> None:
    still = differences(go(Server(3, effect_w=-8, drift_w_per_hour=0), tmp_path / "still"))
    done = go(Server(3, effect_w=-8, drift_w_per_hour=600), tmp_path / "drift")
    before, after = still["watts"], differences(done)["watts"]
    assert before.difference and after.difference and after.drift
    assert after.difference.value == pytest.approx(before.difference.value, abs=0.2)
    assert after.difference.high - after.difference.low == pytest.approx(
        before.difference.high - before.difference.low, rel=0.1
    )
    assert after.drift.shown
    assert after.drift.value == pytest.approx(600, rel=0.2)
    assert any("drift: power" in note for note in judging.judge(done).notes)


def test_order_is_random_balanced_and_begins_with_native() -> None:
    orders = set()
    for seed in range(20):
        plan = design.slots(Design("pacer", minutes=120, seed=seed))
        first = tuple(slot.arm == "native" for slot in plan[::2])
        assert first[0]
        assert all(sum(first[at : at + 4]) == 2 for at in range(0, 20, 4))
        assert {(slot.pair, slot.arm) for slot in plan} == {
            (pair, arm) for pair in range(20) for arm in ("native", "policy")
        }
        orders.add(first)
    assert len(orders) > 15


def test_a_breach_stops_with_that_sample_and_is_for_good(tmp_path: Path) -> None:
    server = Server(1, slow_after_s=3 * 60 + 30)
    done = go(server, tmp_path)
    assert done.end == "stopped"
    assert "mean latency" in done.why
    # In the fourth policy block, set back, and nothing after that.
    assert server.log.count("policy") == 4
    assert server.log[-2:] == ["policy", "restore"]
    last = (tmp_path / "samples").glob("*-policy-1.jsonl")
    lines = max(last).read_text().splitlines()
    # One sample at ten times the latency takes a window of two far over the bound.
    assert json.loads(lines[-1])["time_s"] == 30 + PERIOD_S
    verdict = judging.judge(done)
    assert verdict.conclusion.startswith("Stopped: ")
    assert "3 pairs of blocks are too few, 6 are needed" in verdict.conclusion
    again = Server(1)
    assert go(again, tmp_path).end == "stopped"
    assert again.log == []


def test_a_breach_is_for_good_even_where_setting_back_fails(tmp_path: Path) -> None:
    class Stuck(Server):
        def restore(self) -> None:
            super().restore()
            if self._acted > self.slow_after_s:
                raise WorkError("ebb restore", "a drive hangs", "Run it again")

    with pytest.raises(WorkError, match="a drive hangs"):
        go(Stuck(1, slow_after_s=30), tmp_path)
    assert go(Server(1), tmp_path).end == "stopped"


class Troubled(Server):
    """Ends its nth block in some way."""

    at: int = 0
    how: Any = None

    @contextmanager
    def block(self, acts: bool, seconds: float) -> Iterator[Iterator[str]]:
        with super().block(acts, seconds) as lines:
            blocks = sum(each != "restore" for each in self.log)
            yield self._cut(lines) if blocks == self.at else lines

    def _cut(self, lines: Iterator[str]) -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == 5:
                if isinstance(self.how, BaseException):
                    raise self.how
                yield json.dumps({"event": "state", "time_s": 24, "state": self.how})
            yield line


def troubled(seed: int, at: int, how: Any) -> Troubled:
    server = Troubled(seed)
    server.at, server.how = at, how
    return server


def test_an_interruption_repeats_only_the_block_under_way(tmp_path: Path) -> None:
    server = troubled(2, 6, Interrupted())
    first = go(server, tmp_path)
    assert first.end == "interrupted"
    assert len(first.blocks) == 5
    server.log.clear()
    server.at = 0
    whole = go(server, tmp_path)
    assert whole.end == "complete"
    assert whole.blocks[:5] == first.blocks
    assert len(whole.blocks) == 20
    assert sum(each != "restore" for each in server.log) == 15
    # Killed in the middle of a line; what is done stays.
    journal = tmp_path / "runs.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    server.log.clear()
    assert len(go(server, tmp_path).blocks) == 20
    assert sum(each != "restore" for each in server.log) == 1


@pytest.mark.parametrize("state", ["degraded: 2 controls do not follow", "native: absurd"])
def test_a_block_that_does_not_act_is_repeated_and_told(state: str, tmp_path: Path) -> None:
    plan = design.slots(DESIGN)
    at = next(slot.index for slot in plan if slot.arm == "policy") + 1
    done = go(troubled(4, at, state), tmp_path)
    assert done.end == "complete"
    assert [why for _, why in done.uncounted] == [state]
    verdict = judging.judge(done)
    assert any("1 blocks do not count" in note for note in verdict.notes)
    assert state in telling.tell(verdict, tmp_path)


def test_a_block_that_never_counts_ends_it(tmp_path: Path) -> None:
    class Never(Server):
        def lines(self, acts: bool, seconds: float) -> Iterator[str]:
            if acts:
                yield json.dumps({"event": "state", "time_s": 0, "state": "degraded: 1"})
            yield from super().lines(acts, seconds)

    server = Never(1)
    done = go(server, tmp_path)
    assert done.end == "failed"
    assert "did not count 3 times: degraded: 1" in done.why
    assert server.log[-2:] == ["policy", "restore"]


class Without(Server):
    """Lacks a column, or calls it something else."""

    column: str = ""
    instead: str = ""

    def _sample(self, acts: bool, at: float) -> dict[str, Any]:
        sample: dict[str, Any] = super()._sample(acts, at)
        value = sample["values"].pop(self.column)
        if self.instead:
            sample["values"][self.instead] = value
        return sample


@pytest.mark.parametrize(
    ("column", "instead", "told"),
    [
        (
            "power_w",
            "",
            "signal power_w: is not known in a native block, nor is cpu_power_w.*ebb pr",
        ),
        ("power_w", "power_mw", "signal power_w.*There is 'power_mw'"),
        ("latency_mean_s", "latency_mean_us", "signal latency_mean_s.*'latency_mean_us'"),
        ("bytes", "", "signal bytes.*ebb probe"),
    ],
)
def test_a_signal_that_is_missing_is_named_before_the_policy_acts(
    column: str, instead: str, told: str, tmp_path: Path
) -> None:
    server = Without(1)
    server.column, server.instead = column, instead
    with pytest.raises(LabError, match=told):
        go(server, tmp_path)
    assert "policy" not in server.log
    assert server.now < DESIGN.block_s


def test_latency_that_is_lost_while_acting_ends_the_block(tmp_path: Path) -> None:
    class Lost(Server):
        def _sample(self, acts: bool, at: float) -> dict[str, Any]:
            sample: dict[str, Any] = super()._sample(acts, at)
            if acts and at > 20:
                del sample["values"]["latency_mean_s"]
            return sample

    server = Lost(1)
    done = go(server, tmp_path)
    assert done.end == "failed"
    assert "latency was not known for 15.0 s while Ebb acted" in done.why


def test_power_of_parts_is_told_as_such(tmp_path: Path) -> None:
    class Parts(Server):
        modelled: tuple[str, ...] = ()

        def _sample(self, acts: bool, at: float) -> dict[str, Any]:
            sample: dict[str, Any] = super()._sample(acts, at)
            watts = sample["values"].pop("power_w")
            sample["values"] |= {"cpu_power_w": 0.75 * watts, "ssd_power_w": 0.25 * watts}
            return sample | {"modelled": list(self.modelled)}

    class Modelled(Parts):
        modelled = ("drive0_power_w", "ssd_power_w")

    whole = differences(go(Server(5, effect_w=-20), tmp_path / "whole"))
    verdict = judging.judge(go(Parts(5, effect_w=-20), tmp_path / "measured"))
    assert verdict.meter and verdict.meter.measured
    assert not any("modelled" in note for note in verdict.notes)
    verdict = judging.judge(go(Modelled(5, effect_w=-20), tmp_path / "modelled"))
    found = {each.name: each for each in verdict.differences}
    assert verdict.meter and not verdict.meter.measured
    assert found["watts"].policy == pytest.approx(whole["watts"].policy)
    assert found["cpu_watts"].policy == pytest.approx(0.75 * whole["watts"].policy)
    assert any("modelled" in note for note in verdict.notes)


def test_what_never_varies_differs_by_nothing(tmp_path: Path) -> None:
    class Flat(Server):
        def _sample(self, acts: bool, at: float) -> dict[str, Any]:
            sample: dict[str, Any] = super()._sample(acts, at)
            sample["values"] |= {"power_w": 200.0, "completed": 4.0, "latency_mean_s": 0.25}
            return sample

    verdict = judging.judge(go(Flat(1), tmp_path))
    telling.write(verdict, tmp_path)
    found = {each.name: each for each in verdict.differences}
    for name, value in (("watts", 200), ("latency_mean_ms", 250)):
        assert found[name].native == found[name].policy == value
        assert found[name].difference == found[name].drift == judging.Interval(0, 0, 0)
        assert not found[name].shown


def test_another_trial_is_not_mixed_in(tmp_path: Path) -> None:
    go(Server(1), tmp_path)
    with pytest.raises(LabError, match="another design.*Name another -o"):
        go(Server(1), tmp_path, dataclasses.replace(DESIGN, minutes=30))


def test_too_short_a_trial_says_what_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trial", "--policy", "pacer", "--minutes", "10", "-o", "nowhere"]) == 2
    told = capsys.readouterr().err
    assert "6 are needed. --minutes 36, or a shorter --block" in told


def test_the_answer_is_valid_and_the_page_loads_nothing(tmp_path: Path) -> None:
    verdict = judging.judge(go(Server(6, effect_w=-30), tmp_path))
    assert verdict.conclusion.startswith("pacer, power of the whole server at the wall: power 1")
    assert verdict.conclusion.endswith("no difference in mean latency shown")
    telling.write(verdict, tmp_path)
    told = json.loads((tmp_path / "result.json").read_text())
    jsonschema.validate(told, json.loads(SCHEMA.read_text()))
    linked: list[str | None] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            linked.extend(value for name, value in attrs if name in ("src", "href"))

    page = (tmp_path / "trial.html").read_text()
    Links().feed(page)
    assert not linked
    assert verdict.conclusion in page
    assert page.count("<circle") == 20 * len(verdict.differences)


def ebb(folder: Path, script: str) -> Ebb:
    """A runner of what a shell does instead of `ebb`."""
    path = folder / "ebb"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Ebb(path, "pacer", Ending())


def test_how_ebb_run_ends_is_told(tmp_path: Path) -> None:
    failing = ebb(tmp_path, "echo line; echo error: no luck >&2; exit 1")
    with failing.block(True, 1) as lines, pytest.raises(Unfit, match="code 1: no luck"):
        assert next(lines) == "line"
        next(lines)
    wrong = ebb(tmp_path, "echo error: no policy >&2; exit 2")
    with wrong.block(True, 1) as lines, pytest.raises(LabError, match="no policy"):
        next(lines)
    with pytest.raises(WorkError, match="no policy"):
        wrong.restore()
    # Left before its end, it is told to end and has the time that it takes.
    marks = tmp_path / "marks"
    slow = ebb(
        tmp_path, f"trap 'sleep 0.2; echo ended > {marks}; exit' TERM; echo a; sleep 60 & wait"
    )
    with slow.block(True, 1) as lines:
        next(lines)
    assert marks.read_text() == "ended\n"
    slow.ending.told = True
    with pytest.raises(Interrupted), slow.block(True, 1):
        pass


def start(machine: Machine, out: Path) -> "subprocess.Popen[str]":
    times = ["--minutes", "0.12", "--block", "600 ms", "--washout", "200 ms", "--window", "300 ms"]
    own: list[str | Path] = [
        "--root",
        machine.root,
        "--state",
        machine.state,
        "--config",
        machine.config,
    ]
    words = ["trial", "--policy", "ondemand", "--tolerate", "300%", *times, "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "ebb_lab", *words, "-o", out, *own],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_on_a_copy_of_a_machine(tmp_path: Path) -> None:
    """Ended by a signal while the policy acts, everything is as it was; the same command ends."""
    machine, out = Machine(tmp_path), tmp_path / "trial"
    with machine.busy():
        trial = start(machine, out)
        while not machine.is_slow:
            assert trial.poll() is None, trial.communicate()
            time.sleep(0.01)
        trial.send_signal(signal.SIGTERM)
        told, error = trial.communicate(timeout=60)
        assert trial.returncode == 130, error
        assert machine.frequencies() == ["1000000", "3000000"]
        first = json.loads(told)
        assert first["end"] == "interrupted"
        trial = start(machine, out)
        told, error = trial.communicate(timeout=120)
    assert trial.returncode == 0, error
    assert machine.frequencies() == ["1000000", "3000000"]
    assert not (machine.state / "originals.json").exists()
    answer = json.loads(told)
    jsonschema.validate(answer, json.loads(SCHEMA.read_text()))
    assert answer["blocks"][: len(first["blocks"])] == first["blocks"]
    assert len(answer["blocks"]) == 12
    assert answer["meter"]["columns"] == ["power_w"]
    found = {each["name"]: each for each in answer["differences"]}
    assert found["watts"]["shown"]
    assert found["watts"]["difference"]["value"] == pytest.approx(-40, abs=1)
    # What is sensed while observing, not what the policy would make of it.
    latency = found["latency_mean_ms"]
    assert (latency["native"], latency["policy"]) == pytest.approx((1, 1))


def test_a_configuration_that_acts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    machine.config.write_text("apply = true\n")
    own = ["--root", str(machine.root), "--config", str(machine.config)]
    assert cli.main(["trial", "--policy", "ondemand", "-o", str(tmp_path / "out"), *own]) == 2
    assert "apply = true would have native blocks act" in capsys.readouterr().err


def test_a_policy_that_can_do_nothing_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--root", str(Machine(tmp_path).root)]
    assert cli.main(["trial", "--policy", "pacman", "-o", str(tmp_path / "out"), *own]) == 2
    assert "can do nothing here: this machine has no" in capsys.readouterr().err


def test_an_unknown_policy_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--root", str(Machine(tmp_path).root)]
    assert cli.main(["trial", "--policy", "pacer+pacmen", "-o", str(tmp_path / "out"), *own]) == 2
    assert "no policy 'pacmen'. Did you mean 'pacman'?" in capsys.readouterr().err
