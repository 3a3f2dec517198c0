"""`ebb-lab fit`: ranges hold a known truth, predictions hold what the truth gives, what the
baseline does not decide is told, and what cannot be met is named."""

import csv
import dataclasses
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest

from ebb_lab import binary, cli, toml
from ebb_lab.errors import LabError, WorkError
from ebb_lab.fitting import declaration, outcome, predicting, provenance, study, telling, verdicts
from ebb_lab.fitting.declaration import Free, Row, Target
from ebb_lab.fitting.variants import Variants

ROOT = Path(__file__).parents[2]

# A run takes some hundredths of a second. Under native the exponent is of no consequence: cores
# are at their highest frequency. What ondemand saves hangs on it.
HEAD = """\
policy = "ondemand"
seeds = 1
points = 64
[options]
profile = "generic-1u"
workload = "rand-rw"
duration = "500 ms"
[runs.low]
rate = "1000 IOPS"
policy = ["native", "ondemand"]
[runs.high]
rate = "10000 IOPS"
policy = ["native", "ondemand"]
[[free]]
name = "uncore"
set = "profile:cpu.uncore"
low = 20
high = 100
unit = "W"
why = "no source"
"""
DYNAMIC = """\
[[free]]
name = "dynamic"
set = "profile:cpu.core_dynamic"
low = 1
high = 9
unit = "W"
why = "no source"
"""
EXPONENT = """\
[[free]]
name = "exponent"
set = "profile:cpu.frequency_exponent"
low = 1
high = 3
why = "no source"
"""
CPU = "energy_joules_cpu / seconds"


def row(kind: str, name: str, run: str, paper: float, rest: str) -> str:
    """A row of a declaration about the processor's watts."""
    return (
        f'[[{kind}]]\nname = "{name}"\nrun = "{run}"\nvalue = "{CPU}"\nunit = "W"\n'
        f"paper = {paper!r}\n{rest}\n"
    )


def watts(folder: Path, cpu: str, seed: int) -> dict[tuple[str, str], float]:
    """A server of which everything is known: watts of its processor, by rate and policy."""
    truth = folder / "truth.toml"
    truth.write_text(f'name = "truth"\nsummary = "t"\nbase = "generic-1u"\n[cpu]\n{cpu}\n')
    found = {}
    for run, rate in (("low", 1000), ("high", 10000)):
        told = subprocess.run(
            [
                str(binary.find().path),
                "sim",
                "--profile",
                str(truth),
                "--workload",
                "rand-rw",
                "--rate",
            ]
            + [f"{rate} IOPS", "--duration", "500 ms", "--seed", str(seed), "--json", "-q"]
            + ["--policy", "native", "--policy", "ondemand"],
            capture_output=True,
            check=True,
        )
        for each in json.loads(told.stdout)["runs"]:
            found[run, each["policy"]] = each["energy_joules"]["cpu"] / each["seconds"]
    return found


def measured(truth: dict[tuple[str, str], float]) -> str:
    """The baseline that a paper about this server would state."""
    return "".join(
        row("baseline", run, run, truth[run, "native"], 'of = "native"\nuncertainty = "1%"')
        for run in ("low", "high")
    )


@pytest.mark.parametrize(("uncore", "dynamic", "seed"), [(38, 6.1, 1), (71, 2.3, 2), (55, 4, 3)])
def test_ranges_hold_the_truth_and_predict_it(
    tmp_path: Path, uncore: float, dynamic: float, seed: int
) -> None:
    truth = watts(tmp_path, f'uncore = "{uncore} W"\ncore_dynamic = "{dynamic} W"', 900 + seed)
    saved = row("prediction", "saved", "high", truth["high", "ondemand"], 'of = "ondemand"')
    # As of a policy that no text has: nothing was published.
    alone = saved.replace('"saved"', '"alone"')
    alone = alone.replace(f"paper = {truth['high', 'ondemand']!r}\n", 'over = "native"\n')
    path = tmp_path / "fit.toml"
    path.write_text(f"seed = {seed}\n" + HEAD + DYNAMIC + measured(truth) + saved + alone)
    fit = study.run(path, tmp_path / "out", progress=False)
    assert len(fit.samples) == 20
    (low, high) = fit.ranges.T
    assert (low <= [uncore, dynamic]).all() and ([uncore, dynamic] <= high).all()
    # 1 % of watts pins the one down, and the other as far as the load goes.
    assert (high - low < [12, 8]).all()
    predicted, ratio = fit.predictions
    assert predicted.verdict == verdicts.INSIDE
    assert predicted.range[0] <= truth["high", "ondemand"] <= predicted.range[1]
    assert ratio.verdict is None
    share = truth["high", "ondemand"] / truth["high", "native"]
    assert ratio.range[0] <= share <= ratio.range[1]
    assert fit.joint is not None and fit.joint.rows == 1 and fit.joint.best == 1


def test_what_the_baseline_does_not_decide_is_not_identified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # It takes ondemand half a second to act.
    text = HEAD.replace("500 ms", "1 s").replace("points = 64", "points = 32") + EXPONENT
    text += row("baseline", "low", "low", 52.5, 'of = "native"\nuncertainty = "60%"')
    text += row("prediction", "left", "high", 50.0, 'of = "ondemand"')
    path = tmp_path / "fit.toml"
    path.write_text(text)
    out = tmp_path / "out"
    assert cli.main(["fit", str(path), "-o", str(out), "--json", "-q"]) == 0
    answer = json.loads(capsys.readouterr().out)
    schema = json.loads((ROOT / "docs" / "json-schema" / "lab-fit-2.json").read_text())
    jsonschema.validate(answer, schema)
    assert answer == json.loads((out / "fit.json").read_text())
    (predicted,) = answer["predictions"]
    assert predicted["verdict"] == verdicts.NOT_IDENTIFIED, predicted["range"]
    assert [free["reaches"] for free in answer["free"]] == [["low"], ["low", "high"]]
    decided = predicted["decided_by"]
    assert decided["parameter"] == "uncore" and decided["share"] > 0.8
    assert decided["x"] == sorted(decided["x"])
    assert decided["y"][0] < decided["y"][-1]
    # Once more from the journal, cut off in a line, on one worker: the same to the bit.
    journal = (out / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "runs.jsonl").write_bytes(b"".join(journal[:9]) + journal[9][:50])
    again = study.run(path, tmp_path / "cut", workers=1, progress=False)
    assert json.loads(json.dumps(outcome.as_json(again, out))) == answer
    told = cli.main(["fit", str(path), "-o", str(out), "-q"]), capsys.readouterr().out
    assert told[0] == 0 and "left over uncore (R² " in told[1]
    assert "'exponent' reaches the low and the high end of what was declared" in told[1]
    # The central sample is a server that ebb loads, and meets the baseline there.
    ended = subprocess.run(
        [binary.find().path, "sim", "--experiment", out / "central.toml", "--json", "-q"],
        capture_output=True,
        check=True,
    )
    native = json.loads(ended.stdout)["runs"][0]
    central = next(row["central"] for row in answer["baseline"] if row["name"] == "low")
    assert native["energy_joules"]["cpu"] / native["seconds"] == pytest.approx(central)
    table = pq.read_table(out / "samples.parquet")
    assert len(table) == answer["forecast"] + 1 == 20
    assert table.schema.field("uncore").metadata[b"unit"] == b"W"
    assert table.schema.metadata[b"ebb_lab.commit"] == b"not in git"


def test_a_row_that_cannot_be_met_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fit.toml"
    small = HEAD.replace("points = 64", "points = 16")
    # 24 cores on top of an uncore of at most 100 W do not come to 900 W.
    path.write_text(small + row("baseline", "idle", "low", 900.0, 'of = "native"\nuncertainty=5'))
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 1
    err = capsys.readouterr().err
    assert "baseline 'idle': cannot be met: nearest to 900 W ± 5 is 1" in err
    assert "W, at uncore=" in err and "Widen a free parameter's range" in err
    with (tmp_path / "out" / "not-accepted.csv").open(newline="") as file:
        (nearest,) = csv.DictReader(file)
    assert nearest["row"] == "idle" and float(nearest["deviations off"]) < -100
    told = (tmp_path / "out" / "not-accepted.toml").read_text()
    assert told.startswith("# NOT ACCEPTED: none of 16 points meets the baseline")
    # Each can be met, both cannot: one parameter moves them together.
    both = row("baseline", "low", "low", 60.0, 'of = "native"\nuncertainty = 0.5')
    both += row("baseline", "high", "high", 60.0, 'of = "native"\nuncertainty = 0.5')
    path.write_text(small + both)
    with pytest.raises(WorkError, match="can be met alone, but not with the other rows"):
        study.run(path, tmp_path / "out", progress=False)
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 1
    out = capsys.readouterr().out
    assert "none of 16 points meets the baseline. The nearest meets 0 of 2 rows" in out
    assert "misses" in out and "60.00 ± 0.5" in out
    # What is a little less off is widened, and told.
    wide = both.replace("uncertainty = 0.5", "uncertainty = 4.5")
    path.write_text('leave-out = "row"\n' + small + wide)
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    found = re.search(r"all deviations are widened (\d\.\d+) times", capsys.readouterr().out)
    assert found and 1.5 < float(found[1]) < 3
    # What is accepted replaces it, and the other way round.
    path.write_text(small + both.replace("uncertainty = 0.5", "uncertainty = 90"))
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert not list((tmp_path / "out").glob("not-accepted*"))
    path.write_text(small + both)
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 1
    left = {each.name for each in (tmp_path / "out").iterdir()} - {"inputs", "runs.jsonl"}
    assert left == {"not-accepted.csv", "not-accepted.toml", "not-accepted-profile.toml"}


def test_points_that_are_no_server_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = watts(tmp_path, 'uncore = "45 W"', 5)
    text = HEAD.replace("low = 20", "low = -60") + measured(truth).replace('"1%"', '"4%"')
    path = tmp_path / "fit.toml"
    path.write_text('leave-out = "row"\n' + text)
    fit = ["fit", str(path), "-o", str(tmp_path / "out"), "-q"]
    assert cli.main(fit) == 0
    told = capsys.readouterr().out
    assert "points are no possible server and left out; the first: " in told
    assert "uncore" in told and "is negative" in told
    # Refused points are not simulated again, and come out the same.
    before = (tmp_path / "out" / "runs.jsonl").read_bytes()
    assert cli.main([*fit, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (tmp_path / "out" / "runs.jsonl").read_bytes() == before
    assert 0 < answer["refused"]["points"] < answer["points"] / 2
    assert answer["free"][0]["region"][0] > 0
    # All of them: the first reason, and what to do.
    path.write_text(text.replace("high = 100", "high = -20"))
    assert cli.main(fit) == 2
    told = capsys.readouterr().err
    assert "all 8 points are refused, the first: " in told and "narrow a range" in told


def test_a_value_that_a_point_has_not_refuses_the_point(tmp_path: Path) -> None:
    path = tmp_path / "fit.toml"
    wrong = row("baseline", "low", "low", 60.0, 'of = "native"\nuncertainty = 2')
    path.write_text(HEAD + wrong.replace(CPU, "mean_wats"))
    with pytest.raises(LabError, match="no field 'mean_wats'.*Did you mean 'mean_watts'"):
        study.run(path, tmp_path / "out", progress=False)


def test_rows_left_out_are_predicted_by_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = watts(tmp_path, 'uncore = "45 W"', 7)
    wrong = truth | {("high", "native"): truth["high", "native"] * 1.03}
    text = 'leave-out = "row"\n' + HEAD + measured(wrong).replace('"1%"', '"4%"')
    path = tmp_path / "fit.toml"
    path.write_text(text)
    fit = study.run(path, tmp_path / "out", progress=False)
    assert [each.row.name for each in fit.left_out] == ["low", "high"]
    high = fit.left_out[1]
    assert high.error == pytest.approx(-0.03, abs=0.02)
    # Without its own row the prediction is centred on the others', not drawn to it.
    assert high.mean is not None and abs(high.mean - truth["high", "native"]) < 1.5
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    told = capsys.readouterr().out
    assert "error of rows that were left out  predicted" in told
    assert "energy_joules_cpu / seconds          2 of 2" in told


def test_errors_are_told_by_value_and_what_was_not_predicted_is_counted() -> None:
    watts = dataclasses.replace(PREDICTION, value="mean_watts", paper=100.0, uncertainty=1.4)
    rows = [
        study.LeftOut(watts, "a", 1.0, 90.0, (88.0, 92.0)),
        study.LeftOut(watts, "b", 2.5, 104.0, (99.0, 105.0)),
        study.LeftOut(watts, "c", 1.0, None, None),
        study.LeftOut(dataclasses.replace(PREDICTION, uncertainty=0.1), "c", 1.0, 1.41, (1.4, 1.5)),
    ]
    told = telling._left_out(tuple(rows)).splitlines()
    assert told[-2] == "  1 rows were predicted with deviations up to 2.5 times as wide."
    assert told[-1].startswith("  1 of them the other rows leave open, most 'r': measure more")
    assert told[-4].split() == ["mean_watts", "2", "of", "3", "7.0%", "10.0%"]
    assert told[-3].split() == ["iops", "1", "of", "1", "0.0%", "0.0%"]


PREDICTION = Row("r", "", "run", "pacman", None, "iops", 1.41, 0.0, "", 0.005)
FREE = (Free("a", (), 0, 1, "", "w"), Free("b", (), 0, 1, "s", "w"))


def test_verdicts() -> None:
    samples = np.array([[0.5, 0.5], [0.1, 0.9], [0.9, 0.1], [0.3, 0.2], [0.2, 0.4], [0.4, 0.7]])
    seeds = np.array([-0.03, 0.0, 0.03])

    def judged(centre: float, slope: float) -> predicting.Predicted:
        values = centre + slope * (samples[:, 1] - 0.5) ** 2
        return predicting.judge(PREDICTION, FREE, samples, values, centre + seeds)

    inside = judged(1.40, 0.2)
    assert inside.verdict == verdicts.INSIDE and inside.decided is None
    assert inside.seeds == pytest.approx((1.37, 1.43))
    assert inside.range == pytest.approx((1.40, 1.432))
    # What rounds to the stated number counts: 1.405 does.
    assert judged(1.3740, 0.2).verdict == verdicts.INSIDE
    assert judged(1.3720, 0.2).verdict == verdicts.OUTSIDE
    # Rises to both sides of the middle: no rank correlation, and yet b alone decides.
    hangs = judged(1.40, 1.0)
    assert hangs.verdict == verdicts.NOT_IDENTIFIED
    assert judged(1.50, 1.0).verdict == verdicts.OUTSIDE, "nowhere in the range"
    assert hangs.decided is not None and hangs.decided.parameter == "b"
    assert hangs.decided.share == pytest.approx(1.0)
    assert hangs.decided.x == (0.1, 0.2, 0.4, 0.5, 0.7, 0.9)


def test_a_saving_is_told_with_its_range() -> None:
    ratio = dataclasses.replace(PREDICTION, over="sspc", paper=None)
    values = np.array([0.8, 0.84, 0.88])
    found = predicting.judge(ratio, FREE, np.zeros((3, 2)), values, values)
    assert telling._savings([found]) == ["  r: pacman takes 16.0% less than sspc (12.0% … 20.0%)."]


def test_a_bound_is_kept_or_not() -> None:
    def most(low: float, high: float) -> str:
        return verdicts.verdict(1.15, 0.005, low, high, "most")

    assert most(0.9, 1.154) == verdicts.INSIDE
    assert most(0.9, 1.16) == verdicts.NOT_IDENTIFIED
    assert most(1.16, 1.17) == verdicts.OUTSIDE
    assert verdicts.verdict(2.0, 0.0, 2.0, 2.5, "least") == verdicts.INSIDE


def test_rows_are_judged_together_by_draws() -> None:
    """Each row has a draw that meets it, and no draw both."""
    rows = [PREDICTION, dataclasses.replace(PREDICTION, name="s", paper=2.0)]
    unstated = dataclasses.replace(PREDICTION, name="t", paper=None)
    values = np.array([[1.41, 2.5, 0.0], [1.0, 2.0, 0.0], [1.0, 2.5, 0.0]])
    central = np.array([[1.40, 1.42], [2.0, 2.02], [0.0, 0.0]])
    joint = predicting.judge_jointly([*rows, unstated], values, central)
    assert joint == predicting.Joint(rows=2, draws=3, all=0, best=1, missed=("s",))
    assert "None of 3 draws meets all 2 stated rows; the best meets 1" in telling._jointly(joint)[0]
    assert predicting.judge_jointly([unstated], values[:, 2:], central[2:]) is None


@pytest.mark.parametrize(
    ("written", "half"),
    [("1.19", 0.005), ("140", 0.5), ("1.0", 0.05), ("1.5e3", 50.0), ("0.6062", 0.00005)],
)
def test_a_number_is_as_rounded_as_it_is_written(tmp_path: Path, written: str, half: float) -> None:
    path = tmp_path / "n.toml"
    path.write_text(f"paper = {written}\n")
    _, table = toml.read(path, "A number", ("paper",))
    assert toml.rounding(table["paper"]) == pytest.approx(half)
    assert toml.value(table["paper"]) == repr(tomllib.loads(path.read_text())["paper"])


@pytest.mark.parametrize(
    ("quantity", "written", "number", "half"),
    [
        ("power saved, %", "22", 0.78, 0.005),
        ("power below the PC's, %", "39.38", 0.6062, 0.00005),
        ("throughput over SSPC, %", "41", 1.41, 0.005),
        ("time lost to throttling, %", "0.4", 0.004, 0.0005),
        ("share of that which it saves over a day, %", "50", 0.5, 0.005),
        ("mean latency, x", "1.0", 1.0, 0.05),
        ("drive power under SSPC, W", "140", 140.0, 0.5),
    ],
)
def test_a_row_can_name_the_number_that_a_study_states(
    tmp_path: Path, quantity: str, written: str, number: float, half: float
) -> None:
    (tmp_path / "stated.toml").write_text(
        f'[fig-1]\nfigure = "Fig. 1"\nkind = "as-stated"\n'
        f'other = {{ paper = {written}, quantity = "{quantity}" }}\n'
        f'one = {{ as = "fig-1/other", quantity = "{quantity}" }}\n'
    )
    path = tmp_path / "fit.toml"
    path.write_text(BAD.replace("paper = 50.0", 'stated = "fig-1/one"'))
    found = declaration.read(path).predictions[0]
    assert (found.source, found.paper) == ("Fig. 1", number)
    assert found.half == pytest.approx(half)


def test_parameters_go_where_they_are_declared(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("")
    (tmp_path / "load.toml").write_text(
        'name = "l"\nshape = "load.csv"\n'
        '[[jobs]]\nname = "mail"\ndepth = 1\nphases = { busy = "1 s", idle = "2 s" }\n'
        '[[jobs]]\nname = "web"\ndepth = 1\n'
    )
    (tmp_path / "fit.toml").write_text(
        '[runs.a]\nworkload = "load.toml"\nprofile = "mine.toml"\n[runs.b]\nworkload = "mail"\n'
        '[[free]]\nname = "depth"\nset = ["workload:jobs.mail.depth", "workload:jobs.web.depth"]\n'
        'low = 1\nhigh = 8\nwhole = true\nwhy = "w"\n'
        '[[free]]\nname = "idle"\nset = "workload:jobs.mail.phases.idle"\nlow = 1\nhigh = 100\n'
        'log = true\nunit = "s"\nwhy = "w"\n'
        '[[free]]\nname = "inlet"\nset = "profile:drives.count"\nlow = 1\nhigh = 4\nwhole = true\n'
        'plain = true\nunit = "drives"\nwhy = "w"\n'
        '[[free]]\nname = "rate"\nset = "option:rate"\nlow = 1\nhigh = 5\nunit = "IOPS"\n'
        'why = "w"\n'
        '[[free]]\nname = "draw"\nset = "profile:drives.model.drive.power.active"\nlow = 1\n'
        'high = 9\nunit = "W"\nwhy = "w"\n'
        '[[baseline]]\nname = "n"\nrun = "a"\nof = "native"\nvalue = "iops"\npaper = 1\n'
        "uncertainty = 1\n"
    )
    (tmp_path / "mine.toml").write_text('name = "mine"\n[drives]\nmodel = "drive.toml"\n')
    (tmp_path / "drive.toml").write_text('[drive]\nname = "d"\n[drive.power]\nactive = "2 W"\n')
    declared = declaration.read(tmp_path / "fit.toml")
    depth, idle = declared.free[:2]
    assert {depth.at(share / 100) for share in range(101)} == set(range(1, 9))
    assert [idle.at(share) for share in (0.0, 0.5, 1.0)] == [1.0, 10.0, 100.0]
    variants = Variants(declared, tmp_path / "out")
    options = variants.options("a", [3.0, 10.5, 2.0, 1.5, 7.0])
    assert options["rate"] == "1.5 IOPS"
    _, profile = toml.read(
        tmp_path / "out" / options["profile"], "", ("name", "summary", "base", "drives")
    )
    assert profile["drives"]["count"] == 2
    # A value that names a file leads into a copy of it.
    model = profile["drives"]["model"]
    _, drive = toml.read(Path(model), "", ("drive",))
    assert drive["drive"] == {"name": "d", "power": {"active": "7.0 W"}}
    _, load = toml.read(tmp_path / "out" / options["workload"], "", ("name", "shape", "jobs"))
    assert [job["depth"] for job in load["jobs"]] == [3, 3]
    assert load["jobs"][0]["phases"] == {"busy": "1 s", "idle": "10.5 s"}
    assert load["shape"] == str(tmp_path / "load.csv")
    # A run of a built-in workload has nothing of this, and the same point the same files.
    assert variants.options("b", [3.0, 10.5, 2.0, 1.5, 7.0])["workload"] == "mail"
    assert variants.options("a", [3.0, 10.5, 2.0, 1.5, 7.0]) == options
    missing = Free("x", (Target("workload", ("jobs", "mial", "depth")),), 0, 1, "", "w")
    with pytest.raises(LabError, match="Did you mean 'jobs.mail.depth'"):
        Variants(dataclasses.replace(declared, free=(missing,)), tmp_path / "out")


def test_the_commit_is_that_of_the_declaration(tmp_path: Path) -> None:
    path = tmp_path / "fit.toml"
    path.write_text("1")

    def git(*words: str) -> str:
        return subprocess.run(
            [
                str(shutil.which("git")),
                "-C",
                str(tmp_path),
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                *words,
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert str(provenance.commit([path])) == "not in git"
    git("init", "-q")
    assert provenance.commit([path]).id is None
    git("add", "fit.toml")
    git("commit", "-qm", "declare")
    head = git("rev-parse", "HEAD")
    assert provenance.commit([path]) == provenance.Commit(head, False)
    git("commit", "-qm", "later", "--allow-empty")
    path.write_text("2")
    assert provenance.commit([path]) == provenance.Commit(head, True)
    assert str(provenance.commit([path])) == f"commit {head[:12]}, changed since"


BAD = HEAD + row("baseline", "idle", "low", 60.0, 'of = "native"\nuncertainty = 2')
BAD += row("prediction", "saved", "low", 50.0, 'of = "ondemand"\nbound = "most"')


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("points = 64", "point = 64", "Did you mean 'points'"),
        ("points = 64", "points = 3", "points: is 3"),
        ("seeds = 1", "prediction-seeds = 3", "prediction-seeds: is 3. A whole number from 10"),
        ("seeds = 1", 'leave-out = "row"', "leave-out: leaves no row to fit"),
        ("seeds = 1", 'leave-out = "figure"', "leave-out: is 'figure'"),
        ('policy = "ondemand"\nseeds', "seeds", "policy: is not stated"),
        ('of = "native"', 'of = "ondemand"', "is of ondemand, the policy that is judged"),
        ('of = "ondemand"', 'of = "native"', "is a prediction too"),
        ('of = "native"', 'of = "pacer"', "run 'low' has no 'pacer'"),
        ('name = "idle"\nrun = "low"', 'name = "idle"\nrun = "lo"', "no run 'lo'. Did you mean"),
        ("uncertainty = 2", 'bound = "most"', "bound: stands in a row of the baseline"),
        ("uncertainty = 2", 'uncertainty = "2 W"', "uncertainty: is no such number"),
        ('bound = "most"', 'bound = "about"', "bound: is 'about'"),
        ('bound = "most"', "tolerance = 1", "no key 'tolerance'"),
        ("paper = 60.0", 'paper = "60"', "paper: is '60'"),
        ("paper = 60.0", "", "'paper' is not stated"),
        ("paper = 50.0", 'stated = "fig-1/one"', "stated.toml has no number 'fig-1/one'"),
        ("paper = 50.0", 'paper = 50.0\nstated = "a/b"', "paper: stands beside 'stated'"),
        ("paper = 50.0", "", "bound: stands without 'paper'"),
        ("energy_joules_cpu / s", "energy_joules_cpu - s", "is no value"),
        ("energy_joules_cpu / s", "energy_joules_gpu / s", "Did you mean 'energy_joules_cpu'"),
        ("low = 20", "low = 200", "free.uncore: 200 to 100 is no range"),
        ('why = "no source"', "", "'why' is not stated"),
        ("profile:cpu.uncore", "cpu.uncore", "is no place"),
        ("profile:cpu.uncore", "option:rate", "run 'low' states 'rate' too"),
        ("profile:cpu.uncore", "profile:cpu.uncor", "uncor"),
        ("profile:cpu.uncore", "profile:stage.frontend.cores", "Did you mean 'front-end'"),
        ("profile:cpu.uncore", "profile:cpu.uncore.watts", "'45 W' is neither a file nor"),
        ("profile:cpu.uncore", "profile:drives.modl.drive", "modl"),
        ("profile:cpu.uncore", "workload:jobs.mail.depth", "no run's workload file has"),
        ('set = "profile:cpu.uncore"', 'set = ["option:jobs", "option:jobs"]', "is set twice"),
        ("low = 20", "low = nan", "free.uncore: low: is nan"),
        ("high = 100", "high = inf", "free.uncore: high: is inf"),
        ("high = 100", "high = 100.5\nwhole = true", "are no whole numbers"),
        ("high = 100", 'high = 100\nlog = "yes"', "log: is 'yes'. true or false"),
        ('why = "no source"', "why = 3", "why: is 3. A text"),
        ('name = "uncore"', "", "free: 'name' is not stated"),
        ("paper = 60.0", "paper = nan", "paper: is nan"),
        ("uncertainty = 2", "uncertainty = inf", "uncertainty: is no such number"),
        ('unit = "W"\npaper', 'unit = "us"\npaper', "'us' is no unit of 'energy_joules_cpu / sec"),
        ('rate = "1000 IOPS"', '"option:rate" = 3', "'option:rate' is an option. Write rate"),
        ('duration = "500 ms"', "seed = 3", "'seed' is the declaration's own"),
    ],
)
def test_a_bad_declaration_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, told: str
) -> None:
    assert before in BAD
    path = tmp_path / "fit.toml"
    path.write_text(BAD.replace(before, after, 1))
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}")
    assert told in err
