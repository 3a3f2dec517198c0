"""`ebb-lab tune`: a study finds what is there to find, says so when nothing is, and resumes."""

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from ebb_lab import binary, cli, tuning
from ebb_lab.errors import LabError

ROOT = Path(__file__).parents[2]

# A few gigabytes into RocksDB take some hundredths of a second to simulate.
STUDY = """\
policy = "pacman"
objectives = [{ minimise = "mean_watts" }]
trials = 6
train-seeds = 1
held-out-seeds = 5
[parameters]
alpha = { low = 0.0, high = 2.0 }
beta = { low = 0.0, high = 2.0 }
[options]
profile = "asg-1115s"
workload = "rocksdb"
ssd-budget = "200 W"
[[train]]
name = "small"
data = "4 GB"
[[held-out]]
name = "large"
data = "6 GB"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_a_study_resumes_to_the_same_and_writes_what_ebb_loads(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tuning.tune(study, tmp_path / "whole", workers=2, progress=False)
    assert len(whole.trials) == 6
    assert whole.best.scores[0] == min(trial.scores[0] for trial in whole.trials)
    # Cut off after some runs, with a line half written, and on another number of workers.
    journal = (tmp_path / "whole" / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "runs.jsonl").write_bytes(b"".join(journal[:4]) + journal[4][:30])
    again = tuning.tune(study, tmp_path / "cut", workers=1, progress=False)
    assert (again.trials, again.judged) == (whole.trials, whole.judged)
    told = subprocess.run(
        [binary.find().path, "sim", "--experiment", whole.file, "--json"],
        capture_output=True,
        check=True,
    )
    runs = json.loads(told.stdout)["runs"]
    assert [run["policy"] for run in runs] == ["native", "pacman", whole.tuned]
    assert cli.main(["tune", str(study), "-o", str(tmp_path / "whole"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    schema = ROOT / "docs" / "json-schema" / "lab-tune-1.json"
    jsonschema.validate(answer, json.loads(schema.read_text()))
    assert cli.main(["tune", str(study), "-o", str(tmp_path / "whole")]) == 0
    assert capsys.readouterr().out.startswith("Simulated: on held-out loads the tuned pacman ")


def test_parameters_that_change_nothing_beat_nothing(study: Path, tmp_path: Path) -> None:
    """With a budget that no drive reaches, weights of predictions are of no consequence."""
    study.write_text(STUDY.replace('"200 W"', '"400 W"'))
    result = tuning.tune(study, tmp_path / "out", progress=False)
    assert all(trial.scores == (1.0,) for trial in result.trials)
    (judged,) = result.judged
    assert (judged.ratio, judged.low, judged.high) == (1.0, 1.0, 1.0)
    assert judged.verdict == "no difference shown"
    assert "does not beat its defaults" in result.conclusion
    assert "does not beat its defaults" in Path(result.file).read_text()


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((0.8, 0.7, 0.9), "better"), ((1.2, 1.1, 1.3), "worse"), ((0.9, 0.7, 1.0), "no difference")],
)
def test_the_interval_decides(interval: tuple[float, float, float], verdict: str) -> None:
    assert tuning.Judged("iops", *interval, ()).verdict.startswith(verdict)


def test_two_objectives_have_a_front(study: Path, tmp_path: Path) -> None:
    both = '[{ minimise = "mean_watts" }, { maximise = "iops" }]'
    study.write_text(STUDY.replace('[{ minimise = "mean_watts" }]', both))
    result = tuning.tune(study, tmp_path / "out", progress=False)
    assert {each.field for each in result.judged} == {"mean_watts", "iops"}
    for trial in result.trials:
        beaten = [
            other
            for other in result.front
            if all(o <= t for o, t in zip(other.scores, trial.scores, strict=True))
        ]
        assert beaten


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('policy = "pacman"', "", "policy: is not stated"),
        ("trials = 6", "trails = 6", "Did you mean 'trials'"),
        ("trials = 6", "trials = 0", "trials: is 0"),
        ("held-out-seeds = 5", "held-out-seeds = 3", "are too few"),
        ("{ low = 0.0, high = 2.0 }\nbeta", "[0, 2]\nbeta", "parameters.alpha: no range"),
        ('minimise = "mean_watts"', 'least = "mean_watts"', "objectives: "),
        ('minimise = "mean_watts"', 'minimise = "mean_wats"', "Did you mean 'mean_watts'"),
        ('minimise = "mean_watts"', 'minimise = "seconds_over_budget"', "of which no ratio"),
        ('name = "large"\ndata = "6 GB"', 'name = "large"\ndata = "4 GB"', "a training load too"),
        ('name = "large"', 'name = "small"', "two loads have this name"),
        ("alpha = {", "alfa = {", "'alfa="),
        ('data = "6 GB"', "seed = 3", "'seed' is the study's own"),
    ],
)
def test_a_bad_study_is_refused(
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
    told: str,
) -> None:
    assert before in STUDY
    study.write_text(STUDY.replace(before, after))
    assert cli.main(["tune", str(study), "-o", str(tmp_path / "out"), "-q"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {study}")
    assert told in err


def test_the_example_is_a_study() -> None:
    example = tuning.read(ROOT / "examples" / "pacman-study.toml")
    assert set(example.parameters) == {"alpha", "beta"}
    example = tuning.read(ROOT / "examples" / "sandman-study.toml")
    assert set(example.parameters) == {"burst_buffer", "burst_depth"}
    example = tuning.read(ROOT / "examples" / "eadc-study.toml")
    assert example.policy == "eadc" and "fan_gain" in example.parameters
    with pytest.raises(LabError, match="docs/lab.md"):
        tuning.read(ROOT / "README.md")
