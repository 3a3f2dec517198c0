"""`ebb-lab compare` as a person runs it: files in, tables and JSON out, errors that help."""

import json
from pathlib import Path

import jsonschema
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from ebb_lab import cli

HEADER = "policy,seed,mean_watts\n"
NATIVE = "".join(f"native,{seed},{100 + seed / 10}\n" for seed in range(1, 6))
PACER = "".join(f"pacer,{seed},{80 + seed / 10}\n" for seed in range(1, 6))
ASK = ["--by", "policy", "--value", "mean_watts"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_difference_in_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "runs.csv", HEADER + NATIVE + PACER)
    code, out, _ = run(capsys, "compare", file, *ASK)
    assert code == 0
    assert "mean_watts (W) in the whole table: 1 of 1 differences shown" in out
    assert "-19.9%" in out
    assert "covers the median in at most 93.8%" in out


def test_what_spreadsheets_write_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HEADER + NATIVE + PACER
    file = write(tmp_path, "runs.csv", text)
    told = run(capsys, "compare", file, *ASK)
    write(tmp_path, "runs.csv", "\ufeff" + text.replace(",", ";") + ";;\n")
    assert run(capsys, "compare", file, *ASK) == told


def test_no_difference_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = NATIVE.replace("native", "pacer")
    file = write(tmp_path, "runs.csv", HEADER + NATIVE + same)
    code, out, _ = run(capsys, "compare", file, *ASK)
    assert code == 0
    assert "no difference shown" in out
    assert "differences shown" not in out


def test_latencies_of_a_closed_loop_are_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for closed in (True, False):
        rows = [
            {"policy": policy, "seed": seed, "closed_loop": closed or None}
            | {"latency_us_mean": base + seed, "mean_watts": base - seed}
            for policy, base in (("native", 100), ("pacer", 120))
            for seed in range(1, 6)
        ]
        pd.DataFrame(rows).to_parquet(tmp_path / "runs.parquet")
        for value in ("latency_us_mean", "mean_watts"):
            code, out, _ = run(
                capsys, "compare", tmp_path / "runs.parquet", "--by", "policy", "--value", value
            )
            assert code == 0
            assert ("closed loop" in out) == (closed and "latency" in value)


def test_runs_that_have_not_settled_are_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for why in ("pacer takes up to 28 s to settle", None):
        rows = [
            {"policy": policy, "seed": seed, "unsettled": why if policy == "pacer" else None}
            | {"mean_watts": base - seed}
            for policy, base in (("native", 100), ("pacer", 80))
            for seed in range(1, 6)
        ]
        pd.DataFrame(rows).to_parquet(tmp_path / "runs.parquet")
        ask = ("--by", "policy", "--value", "mean_watts")
        code, out, _ = run(capsys, "compare", tmp_path / "runs.parquet", *ask)
        assert code == 0
        assert (f"Note: no figure for longer than these runs: {why}." in out) == bool(why)


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "runs.csv", HEADER + NATIVE + PACER)
    code, out, _ = run(capsys, "compare", file, *ASK, "--json")
    (found,) = json.loads(out)["comparisons"]
    assert code == 0
    assert found["unit"] == "W"
    assert found["different"]
    assert found["pairs"][0]["cliffs_delta"] == -1


def test_all_formats_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(write(tmp_path, "a.csv", HEADER + NATIVE + PACER))
    frame.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "c.parquet")
    frame.to_csv(tmp_path / "d.csv.gz", index=False)
    (tmp_path / "results").mkdir()
    frame.to_parquet(tmp_path / "results" / "dataset.parquet")
    told = []
    for name in ("a.csv", "b.jsonl", "c.parquet", "d.csv.gz", "results"):
        code, out, err = run(capsys, "compare", tmp_path / name, *ASK)
        assert code == 0, err
        told.append(out)
    assert len(set(told)) == 1


def test_what_ebb_sim_prints_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def result(seed: int) -> str:
        runs = [
            {"policy": "native", "latency_us": {"p99": 100 + seed}},
            {"policy": "pacer", "latency_us": {"p99": 100.5 + seed}},
        ]
        return json.dumps({"schema": 1, "seed": seed, "profile": "x", "runs": runs}, indent=1)

    file = write(tmp_path, "runs.json", "\n".join(result(seed) for seed in range(1, 7)))
    code, out, err = run(capsys, "compare", file, "--by", "policy", "--value", "latency_us_p99")
    assert code == 0, err
    assert "latency_us_p99 (µs)" in out


def test_experiments_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(
        f"{profile},{line}\n" for profile in ("a", "b") for line in (NATIVE + PACER).splitlines()
    )
    file = write(tmp_path, "runs.csv", "profile," + HEADER + rows)
    code, _, err = run(capsys, "compare", file, *ASK)
    assert code == 2
    assert "has seed 1 2 times" in err
    assert "profile: name what tells experiments apart by --within" in err
    code, out, _ = run(capsys, "compare", file, *ASK, "--within", "profile")
    assert code == 0
    assert "in profile=a:" in out
    assert "in profile=b:" in out
    code, out, _ = run(capsys, "compare", file, *ASK, "--where", "profile=b")
    assert code == 0


def test_quantities_with_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"native,{i},{100 + i} W\n" for i in range(5)]
    lines += [f"pacer,{i},{80 + i} W\n" for i in range(5)]
    header = "policy,seed,power\n"
    good = write(tmp_path, "good.csv", header + "".join(lines))
    code, out, _ = run(capsys, "compare", good, "--by", "policy", "--value", "power")
    assert code == 0
    assert "power (W)" in out
    lines[7] = "pacer,2,82000 mW\n"
    bad = write(tmp_path, "bad.csv", header + "".join(lines))
    code, out, err = run(capsys, "compare", bad, "--by", "policy", "--value", "power")
    assert (code, out) == (2, "")
    assert "mixes units: W" in err
    assert f"mW ({bad}:9)" in err


def test_units_in_a_column_and_in_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{g},{i},{i},{u}\n" for g, u in (("a", "J"), ("b", "kWh")) for i in range(5))
    file = write(tmp_path, "long.csv", "group,seed,energy,unit\n" + rows)
    code, _, err = run(capsys, "compare", file, "--by", "group", "--value", "energy")
    assert code == 2
    assert "mixes units: J" in err
    for unit in ("W", "mW"):
        table = pa.table({"policy": [unit] * 5, "power": [1.0, 2, 3, 4, 5]})
        field = pa.field("power", pa.float64(), metadata={"unit": unit})
        table = table.cast(pa.schema([table.schema.field("policy"), field]))
        pyarrow.parquet.write_table(table, tmp_path / f"{unit}.parquet")
    both = [tmp_path / "W.parquet", tmp_path / "mW.parquet"]
    code, _, err = run(capsys, "compare", *both, "--by", "policy", "--value", "power")
    assert code == 2
    assert "is in mW" in err


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        (HEADER + NATIVE, ["--by", "polcy", "--value", "mean_watts"], "Did you mean 'policy'?"),
        (HEADER + NATIVE, ["--by", "policy", "--value", "watts"], "no column 'watts'"),
        (HEADER + NATIVE, ASK, "nothing to compare"),
        (HEADER + NATIVE + "pacer,1,80\n", ASK, "has 1 repeats, too few"),
        (HEADER + NATIVE + "pacer,1,\n", ASK, ":7, in the whole table: 'mean_watts'"),
        (HEADER + NATIVE + 'pacer,1,"2,628"\n', ASK, "is '2,628', which is no finite number"),
        (HEADER + NATIVE + "pacer,1,nan\n", ASK, "is 'nan', which is no finite number"),
        (HEADER + NATIVE + "pacer,1,inf\n", ASK, "is 'inf', which is no finite number"),
        (HEADER + NATIVE + "pacer,1,fast\n", ASK, "is 'fast'"),
        (HEADER + NATIVE + PACER + ",6,1\n", ASK, ":12: 'policy' is empty"),
        (HEADER + NATIVE + "pacer,1\n", ASK, ":7: 2 fields, but the header has 3"),
        (HEADER + NATIVE + PACER, [*ASK, "--groups", "native,pacman"], "'pacman' is empty"),
        (HEADER + NATIVE + PACER, [*ASK, "--where", "policy=x"], "has: native, pacer"),
        (HEADER + NATIVE + PACER + PACER, ASK, "copies are no repeats"),
        ("policy,policy\n", ASK, "is there twice"),
        (HEADER, ASK, "there are no rows"),
        ("", ASK, "there are no rows"),
    ],
)
def test_bad_input_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    words: list[str],
    told: str,
) -> None:
    file = write(tmp_path, "runs.csv", text)
    code, out, err = run(capsys, "compare", file, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert told in err


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.json", b'{"a": 1}\n{"a": }', "a.json:2: not JSON"),
        ("a.jsonl", b'{"a": NaN}', "NaN is no JSON number"),
        ("a.jsonl", b"[1]", "not a JSON object"),
        ("a.csv", b"a\n\xff\xff", "a.csv:2: cannot be read"),
        ("a.csv.gz", b"no gzip", "cannot be read"),
        ("a.parquet", b"no parquet", "cannot be read"),
        ("a.xlsx", b"", "are not known"),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(data)
    code, out, err = run(capsys, "compare", tmp_path / name, *ASK)
    assert (code, out) == (2, "")
    assert told in err
    code, _, err = run(capsys, "compare", tmp_path / "absent.csv", *ASK)
    assert code == 2


def test_json_is_as_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constant = "".join(f"flat,{seed},7\n" for seed in range(1, 7))
    file = write(tmp_path, "runs.csv", HEADER + NATIVE + PACER + constant)
    code, out, _ = run(capsys, "compare", file, *ASK, "--json")
    assert code == 0
    schema = Path(__file__).parents[2] / "docs" / "json-schema" / "lab-compare-1.json"
    jsonschema.validate(json.loads(out), json.loads(schema.read_text()))


def test_a_figure_has_every_group_and_the_same_bytes_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "runs.csv", HEADER + NATIVE + PACER)
    for name in ("a.svg", "b.svg", "c.pdf", "d.png"):
        code, _, err = run(capsys, "compare", file, *ASK, "--figure", tmp_path / name)
        assert code == 0, err
    svg = (tmp_path / "a.svg").read_text()
    for word in ("native", "pacer", "mean_watts (W)", "the whole table"):
        assert word in svg
    assert "no difference" not in svg
    assert svg == (tmp_path / "b.svg").read_text()
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    for name, told in (("x.doc", "no format"), ("no/x.svg", "no such folder")):
        code, out, err = run(capsys, "compare", file, *ASK, "--figure", tmp_path / name)
        assert (code, out) == (2, "")
        assert told in err
