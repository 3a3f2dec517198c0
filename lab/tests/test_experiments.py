"""Grids run whole: on threads, killed and resumed, over a cluster; always the same dataset."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
from conftest import GRID, slow_ebb

from ebb_lab import binary, cli, experiments, grid, simulating
from ebb_lab.errors import LabError
from ebb_lab.journal import Journal

SOURCE = str(Path(cli.__file__).parents[1])


def start(env: dict[str, str], *words: object) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (SOURCE, env.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "ebb_lab", *map(str, words)],
        env=env | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(env: dict[str, str], *words: object) -> tuple[int, str, str]:
    with start(env, *words) as process:
        out, err = process.communicate()
        return process.returncode, out, err


def lines(out: Path) -> int:
    file = out / "runs.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_lines(out: Path, count: int) -> None:
    for _ in range(12_000):
        if lines(out) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"no {count} runs within two minutes")


class Shuffled(Executor):
    """Workers that finish in any order: runs each job only when asked what has ended."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.pending: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.pending.append((future, fn, args))
        if len(self.pending) >= 6:
            self.random.shuffle(self.pending)
        while len(self.pending) >= 5:
            one, work, given = self.pending.pop()
            one.set_result(work(*given))
        if not any(other.done() for other, _, _ in self.pending):
            one, work, given = self.pending[0]
            one.set_result(work(*given))
            self.pending.pop(0)
        return future


class ShuffledClient:
    """As much of a Dask client as the lab uses."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def nthreads(self) -> dict[str, int]:
        return {"one": 2, "two": 1}

    def get_executor(self, **_: object) -> Executor:
        return Shuffled(self.seed)


def test_a_dataset_with_all_rows_units_and_provenance(grid: Path, tmp_path: Path) -> None:
    status = experiments.run(grid, tmp_path / "out")
    assert (status.done, status.failed, status.total) == (12, 0, 12)
    table = pq.read_table(tmp_path / "out" / "dataset.parquet")
    frame = table.to_pandas()
    assert len(frame) == 24
    assert set(frame.policy) == {"native", "ondemand"}
    assert list(frame.seed[::2]) == [1, 2, 3, 4, 5, 6] * 2
    assert set(frame.rate) == {"500 IOPS", "1000 IOPS"}
    assert (frame.mean_watts > 0).all()
    assert table.schema.field("mean_watts").metadata[b"unit"] == b"W"
    assert table.schema.field("latency_us_p99").metadata[b"unit"] == "µs".encode()
    assert table.schema.field("mean_watts").metadata[b"source"].startswith(b"modelled")
    assert table.schema.field("rate").metadata[b"source"] == b"option of the grid"
    about = table.schema.metadata
    assert about[b"ebb_lab.grid"].decode() == GRID
    assert about[b"ebb.sha256"].decode() == binary.find().sha256
    # The command of a row, by hand, gives the row.
    words = frame.command[3]
    again = subprocess.run(
        [str(binary.find().path), *shlex.split(words)[1:], "--json"],
        capture_output=True,
        check=True,
    )
    assert json.loads(again.stdout)["runs"][1]["mean_watts"] == frame.mean_watts[3]


def test_killed_in_mid_run_it_goes_on_to_the_same_bytes(grid: Path, tmp_path: Path) -> None:
    env = slow_ebb(tmp_path, 0.1)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert finish(env, "run", grid, "-o", whole, "-q")[0] == 0
    for count in (2, 6):
        with start(env, "run", grid, "-o", killed, "-q", "--workers", 2) as process:
            wait_for_lines(killed, count)
            process.kill()
    done = lines(killed)
    assert 6 <= done < 12
    assert not (killed / "dataset.parquet").exists()
    # A line that was being written when it ended.
    with (killed / "runs.jsonl").open("ab") as file:
        file.write(b'{"key":"half a li')
    code, out, err = finish(env, "run", grid, "-o", killed, "-q", "--workers", 1)
    assert code == 0, err
    assert "12 of 12 runs done" in out
    assert lines(killed) == 12
    assert (killed / "dataset.parquet").read_bytes() == (whole / "dataset.parquet").read_bytes()


def test_an_interrupt_keeps_what_is_done(grid: Path, tmp_path: Path) -> None:
    env = slow_ebb(tmp_path, 0.1)
    with start(env, "run", grid, "-o", tmp_path / "out", "-q", "--workers", 1) as process:
        wait_for_lines(tmp_path / "out", 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert lines(tmp_path / "out") >= 2


def test_a_killed_run_is_tried_again(grid: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    script = tmp_path / "mortal-ebb"
    # Every run's first process kills itself.
    script.write_text(
        "#!/bin/sh\n"
        f'mark="{marks}/$(echo "$@" | cksum | cut -d" " -f1)"\n'
        '[ "$1" = sim ] && [ ! -e "$mark" ] && : > "$mark" && kill -9 $$\n'
        f'exec "{binary.find().path}" "$@"\n'
    )
    script.chmod(0o755)
    env = os.environ | {"EBB": str(script)}
    code, out, err = finish(env, "run", grid, "-o", tmp_path / "out", "-q")
    assert code == 0, err
    assert len(list(marks.iterdir())) == 12
    assert "12 of 12 runs done, 0 failed" in out


def test_neither_workers_nor_their_order_change_the_dataset(grid: Path, tmp_path: Path) -> None:
    found = set()
    for name, how in (
        ("one", {"workers": 1}),
        ("three", {"workers": 3}),
        ("a", {"client": ShuffledClient(1)}),
        ("b", {"client": ShuffledClient(2)}),
    ):
        status = experiments.run(grid, tmp_path / name, **how)
        assert status.done == 12
        found.add((tmp_path / name / "dataset.parquet").read_bytes())
    assert len(found) == 1
    orders = [
        [json.loads(line)["key"] for line in (tmp_path / n / "runs.jsonl").read_text().splitlines()]
        for n in "ab"
    ]
    assert orders[0] != orders[1]


def test_a_grid_that_grew_runs_only_what_is_new(grid: Path, tmp_path: Path) -> None:
    experiments.run(grid, tmp_path / "out")
    grid.write_text(GRID.replace("to = 6", "to = 8"))
    status = experiments.run(grid, tmp_path / "out")
    assert (status.done, lines(tmp_path / "out")) == (16, 16)
    grid.write_text(GRID.replace("to = 6", "to = 2"))
    assert experiments.run(grid, tmp_path / "out").total == 4
    assert lines(tmp_path / "out") == 16
    assert len(pq.read_table(tmp_path / "out" / "dataset.parquet")) == 8


def test_a_file_that_changed_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'base = "generic-1u"\nname = "mine"\nsummary = "mine"\n[board]\nother = "40 W"\n'
    )
    path = tmp_path / "grid.toml"
    path.write_text(GRID.replace('"generic-1u"', '"mine.toml"').replace("to = 6", "to = 1"))
    before = experiments.run(path, tmp_path / "out")
    assert before.failed == 0, before.failures
    (tmp_path / "mine.toml").write_text((tmp_path / "mine.toml").read_text().replace("40", "50"))
    experiments.run(path, tmp_path / "out")
    assert lines(tmp_path / "out") == 4
    frame = pq.read_table(tmp_path / "out" / "dataset.parquet").to_pandas()
    assert frame.profile_sha256.notna().all()


def test_failures_are_told_and_do_not_end_the_others(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.write_text(GRID.replace('"500 IOPS"', '"500 parsecs"'))
    assert cli.main(["run", str(grid), "-o", str(tmp_path / "out"), "--workers", "2"]) == 1
    out = capsys.readouterr().out
    assert "6 of 12 runs done, 6 failed" in out
    assert "rate=500 parsecs, seed=1" in out
    assert "IOPS" in out
    assert len(pq.read_table(tmp_path / "out" / "dataset.parquet")) == 12
    # Corrected, only what failed is run again.
    grid.write_text(GRID)
    assert cli.main(["run", str(grid), "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert cli.main(["status", str(tmp_path / "out"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["done"], status["failed"], status["running"]) == (12, 0, False)
    schema = Path(__file__).parents[2] / "docs" / "json-schema" / "lab-status-1.json"
    jsonschema.validate(status, json.loads(schema.read_text()))


def test_a_hopeless_grid_ends_early(grid: Path, tmp_path: Path) -> None:
    grid.write_text(GRID.replace("to = 6", "to = 500").replace("generic-1u", "no-such-server"))
    status = experiments.run(grid, tmp_path / "out", workers=1)
    assert status.done == 0
    assert status.failed < 20
    assert status.dataset is None
    assert "no-such-server" in status.failures[0][1]


def test_two_at_once_are_refused(grid: Path, tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "out"),
        pytest.raises(LabError, match="another ebb-lab is running"),
    ):
        experiments.run(grid, tmp_path / "out")


def test_a_damaged_journal_names_the_line(grid: Path, tmp_path: Path) -> None:
    experiments.run(grid, tmp_path / "out")
    file = tmp_path / "out" / "runs.jsonl"
    text = file.read_text().splitlines()
    text[4] = text[4][:40]
    file.write_text("\n".join(text) + "\n")
    with pytest.raises(LabError, match="runs.jsonl:5: damaged"):
        experiments.run(grid, tmp_path / "out")


def test_another_build_on_a_worker_is_refused(tmp_path: Path) -> None:
    job = grid.Job("k", ("--seed=1",), str(tmp_path), (), "0" * 64, (("seed", "1"),))
    assert "another build of ebb" in simulating.simulate(job)["error"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[axes]", "[axis]", "Did you mean 'axes'"),
        ("{ from = 1, to = 6 }", "{ from = 1 }", "axes.seed: no range"),
        ("{ from = 1, to = 6 }", "[]", "axes.seed: no values"),
        ("{ from = 1, to = 6 }", "[1, 1]", "the same run is there twice"),
        ("[axes]", "json = true\n[axes]", "'json' says where results go"),
        ("[axes]", "[axes]\nduration = ['2 s']", "'duration' is stated twice"),
        ("[axes]", "trace = 'none.csv'\n[axes]", "none.csv: No such file"),
        ("[axes]", "[axes]\ndepth = [{a = 1}]", "A text, a number or a list"),
        ('"1 s"', '"1 s', "A grid is a TOML file"),
    ],
)
def test_a_bad_grid_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, told: str
) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(GRID.replace(before, after))
    assert cli.main(["run", str(path), "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}")
    assert told in err
    assert not (tmp_path / "out").exists()


def test_cases_vary_options_together(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        GRID + '[[cases]]\nname = "reads"\nread = "100%"\n'
        '[[cases]]\nname = "writes"\nread = "0%"\nblock = "16 KiB"\n'
    )
    jobs = grid.read(path, binary.find()).jobs
    assert len(jobs) == 24
    assert len({job.key for job in jobs}) == 24
    assert jobs[-1].title == "case=writes, rate=1000 IOPS, seed=6"
    assert {"--read=0%", "--block=16 KiB"} <= set(jobs[-1].words)


def test_windows_of_a_sample_have_leads_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text('name = "s"\n[options]\nworkload = "diurnal"\n[axes]\nsampled = ["5%"]\n')
    (job,) = grid.read(path, binary.find()).jobs
    assert "--sampled=5%" in job.words
    assert not [word for word in job.words if "warmup" in word]


def test_over_dask(grid: Path, tmp_path: Path) -> None:
    """The same dataset from a cluster, one of whose workers is killed on the way."""
    distributed = pytest.importorskip("distributed")
    experiments.run(grid, tmp_path / "here")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(lambda: __import__("sys").path.insert(0, SOURCE))
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        status = experiments.run(grid, tmp_path / "there", client=client)
    assert (status.done, status.failed) == (12, 0)
    here, there = (tmp_path / name / "dataset.parquet" for name in ("here", "there"))
    assert here.read_bytes() == there.read_bytes()
