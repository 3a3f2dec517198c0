"""`ebb-lab plan`: the number of servers follows the limit, the sums follow from the runs."""

import csv
import io
import json
import random
import shlex
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebb_lab import binary, cli, page, placement, planning
from ebb_lab.errors import LabError
from ebb_lab.planning import Candidate, Question

ROOT = Path(__file__).parents[2]
OFFICE = str(ROOT / "examples" / "office.csv.gz")
SHORT = ("--to=2 s",)


@pytest.fixture
def reads(tmp_path: Path) -> str:
    """Two thousand random reads at a rate that one server of disks does not keep up with."""
    lot = random.Random(1)  # noqa: S311
    rows, at = [], 0.0
    for _ in range(2_000):
        at += lot.expovariate(8_000) * 1e9
        rows.append(f"{int(at)},R,{lot.randrange(100 << 30) // 4096 * 4096},4096,0,0,\n")
    path = tmp_path / "reads.csv"
    path.write_text("at_ns,op,offset,bytes,device,stream,latency_ns\n" + "".join(rows))
    return str(path)


def question(trace: str = OFFICE, **more: object) -> Question:
    about = {"candidates": (Candidate("generic-1u"),), "seeds": 5, "options": SHORT} | more
    return Question(traces=(trace,), **about)  # type: ignore[arg-type]


def test_a_tighter_limit_takes_more_servers_which_keep_it(reads: str) -> None:
    numbers = []
    for limit in (60_000.0, 16_000.0):
        answer = planning.plan(
            question(reads, candidates=(Candidate("backup-36"),), p99_us=limit, options=())
        )
        (row,) = answer.rows
        assert row.because == "latency"
        assert row.keeps_p99
        assert row.p99_us.median <= limit
        numbers.append(row.servers)
    assert 1 <= numbers[0] < numbers[1]


def test_sums_follow_from_power() -> None:
    asked = question(
        candidates=(Candidate("generic-1u", price=1_000.0),),
        years=3,
        energy_price=0.5,
        carbon_g_per_kwh=400,
        pue=1.5,
    )
    (row,) = planning.plan(asked).rows
    assert row.servers == 1
    assert row.kwh.median == pytest.approx(row.watts.median / 1000 * 8_760 * 3 * 1.5)
    assert row.energy_cost.median == pytest.approx(row.kwh.median * 0.5)
    assert row.cost.median == pytest.approx(row.energy_cost.median + 1_000)
    assert row.co2_kg.median == pytest.approx(row.kwh.median * 0.4)


def test_a_saving_that_breaks_the_tolerance_says_so() -> None:
    candidates = (Candidate("dorado-6000"),)
    answer = planning.plan(question(candidates=candidates, policies=("native", "ondemand")))
    assert [row.seeds_beyond_plf for row in answer.rows] == [0, 5]
    told = planning.tell(answer)
    assert "ondemand on dorado-6000 saves at a price: in 5 of 5 seeds it raises" in told


def test_the_power_of_few_servers_is_their_sum(tmp_path: Path) -> None:
    asked = question(
        candidates=(Candidate("generic-1u", holds_bytes=1e12),), data_bytes=2.5e12, p99_us=1e6
    )
    (row,) = planning.plan(asked).rows
    assert (row.servers, row.because) == (3, "capacity")
    ebb = binary.find()
    requests = placement.convert(ebb, [OFFICE, *SHORT], tmp_path / "all.parquet")
    sums = []
    for seed in range(1, 6):
        at = placement.places(requests, 3, seed)
        watts = 0.0
        for server in range(3):
            placement.write(requests, at == server, tmp_path / "one.parquet")
            words = ["--profile=generic-1u", "--policy=native", "--fold", f"--seed={seed}"]
            told = subprocess.run(
                [ebb.path, "sim", f"--trace={tmp_path}/one.parquet", *words, "--json"],
                capture_output=True,
                check=True,
            )
            watts += json.loads(told.stdout)["runs"][0]["mean_watts"]
        sums.append(watts)
    assert row.watts.median == pytest.approx(np.median(sums))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9)), min_size=1, max_size=50),
    st.integers(1, 20),
    st.integers(0, 2**32),
)
def test_extents_stay_whole_wherever_they_are_laid(
    requests: list[tuple[int, int]], servers: int, seed: int
) -> None:
    table = pa.table({"offset": [r[0] for r in requests], "device": [r[1] for r in requests]})
    at = placement.places(table, servers, seed)
    assert ((at >= 0) & (at < servers)).all()
    homes: dict[tuple[int, int], int] = {}
    for (offset, device), server in zip(requests, at, strict=True):
        extent = (offset // placement.EXTENT, device)
        assert homes.setdefault(extent, int(server)) == server


def test_extents_are_spread_evenly_and_anew_by_each_seed() -> None:
    offsets = pa.array(np.arange(20_000, dtype=np.uint64) * np.uint64(placement.EXTENT))
    table = pa.table({"offset": offsets, "device": pa.array(np.zeros(20_000, dtype=np.uint32))})
    one, other = (placement.places(table, 8, seed) for seed in (1, 2))
    for at in (one, other):
        # 2,500 each; six standard deviations are 281.
        assert (abs(np.bincount(at, minlength=8) - 2_500) < 281).all()
    assert abs((one == other).mean() - 1 / 8) < 0.02


def test_the_command_tells_json_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "--trace", OFFICE, "--to", "2 s", "--seeds", "5", "--p99", "20 ms"]
    words += ["--candidate", "generic-1u, price=9000", "--candidate", "thermal-1u, price=9500"]
    words += ["--policy", "native", "--policy", "ondemand", "--page", str(tmp_path / "plan.html")]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("Modelled: 1 x generic-1u under ")
    assert "thermal-1u" in out
    assert "p99 at most 20 ms" in out
    assert cli.main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    schema = ROOT / "docs" / "json-schema" / "lab-plan-1.json"
    jsonschema.validate(answer, json.loads(schema.read_text()))
    assert [row["policy"] for row in answer["rows"]] == ["native", "ondemand"] * 2
    text = (tmp_path / "plan.html").read_text()
    assert "http" not in text
    assert "src=" not in text
    downloads = Downloads()
    downloads.feed(text)
    assert text.count("<tr>") == 5
    assert f"ebb {binary.find().version}" in text
    assert escape(shlex.join(words[:5])) in text
    rows = list(csv.DictReader(io.StringIO(downloads.found["plan.csv"])))
    assert [row["policy"] for row in rows] == ["native", "ondemand"] * 2
    told = json.loads(downloads.found["plan.json"])
    assert float(rows[0]["cost_median"]) == told["rows"][0]["cost"]["median"]


class Downloads(HTMLParser):
    """The files that a page carries."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag == "a" and (name := known.get("download")):
            self.found[name] = unquote((known["href"] or "").partition(",")[2])


def test_names_are_no_markup() -> None:
    answer = planning.Plan(
        question=Question(("<b>",), ()),
        requests=1,
        trace_seconds=1.0,
        rows=(),
        impossible=(("<script>", "&"),),
        conclusion="<i>",
        notes=("<u>",),
    )
    text = page.html(answer, "<s>", "<em>")
    for tag in ("<b>", "<script>", "<i>", "<u>", "<s>", "<em>"):
        assert tag not in text


def test_what_fits_in_no_number_is_told(reads: str) -> None:
    answer = planning.plan(
        question(reads, candidates=(Candidate("backup-36"),), p99_us=1.0, most=2, options=())
    )
    assert answer.rows == ()
    assert answer.conclusion == "no candidate keeps the p99 latency"
    ((name, reason),) = answer.impossible
    assert name == "backup-36"
    assert "with 2 servers" in reason
    assert "backup-36 does not fit" in planning.tell(answer)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--candidate", "no-such-server"], "no-such-server"),
        (["--candidate", "generic-1u, colour=red"], "'colour=red' is unknown"),
        (["--candidate", "generic-1u, holds=3 parsecs"], "Units: B, KB"),
        (["--candidate", "generic-1u", "--candidate", "pass-10, price=1"], "has no price"),
        (["--candidate", "generic-1u", "--candidate", "generic-1u"], "there twice"),
        (["--candidate", "generic-1u", "--p99", "10"], "Units: us"),
        (["--candidate", "generic-1u", "--seeds", "2"], "At least 5"),
        (["--candidate", "generic-1u", "--years", "0"], "--years: 0 is not above 0"),
        (["--candidate", "generic-1u", "--pue", "0.5"], "below 1"),
        (["--candidate", "generic-1u", "--from", "9 h"], "--trace: "),
        (["--candidate", "generic-1u", "--page", "/no/such/folder/x.html"], "--page"),
    ],
)
def test_bad_questions_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    code = cli.main(["plan", "--trace", OFFICE, *([] if "--from" in words else SHORT), *words])
    captured = capsys.readouterr()
    assert code in (1, 2)
    assert captured.err.startswith("error: ")
    assert told in captured.err


def test_a_trace_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("nonsense\n")
    with pytest.raises(LabError, match="--trace: "):
        planning.plan(question(str(tmp_path / "x.csv")))
