"""Tables that people measured become rows of a fit: in the forms that spreadsheets write, with
their units, repeats and holes; what cannot be read is refused with its line."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ebb_lab import binary, cli
from ebb_lab.errors import LabError
from ebb_lab.fitting import declaration, study, telling, values
from ebb_lab.fitting.declaration import Declaration
from ebb_lab.fitting.variants import Variants

ROOT = Path(__file__).parents[2]

HEAD = """\
seeds = 1
points = 8
forecast = 4
[options]
profile = "mine.toml"
workload = "rand-rw"
duration = "50 ms"
[[free]]
name = "rest"
set = "profile:board.other"
low = 20
high = 100
unit = "W"
why = "no source"
[[measured]]
file = "m.csv"
[measured.set]
rate = "{load / 2}k"
policy = "constant(cores={Cores / 8})"
"profile:cpu.power_limit" = "{Cap (W)} W"
[[measured.values]]
column = "99th (ms)"
value = "latency_us_p99"
uncertainty = "30%"
[[measured.values]]
name = "watts"
column = "Wall"
value = "mean_watts"
unit = "W"
uncertainty = "5%"
"""
CSV = "load,Cores,Cap (W),99th (ms),Wall\n2,8,-,0.3,300\n2,8,-,0.5,\n4,4,120,n/a,0.25 kW\n"
MINE = 'name = "mine"\nsummary = "m"\nbase = "generic-1u"\n'


def declared(folder: Path, table: str = CSV, text: str = HEAD) -> Declaration:
    """A declaration in this folder with this table."""
    (folder / "mine.toml").write_text(MINE)
    (folder / "m.csv").write_text(table, newline="")
    (folder / "fit.toml").write_text(text)
    return declaration.read(folder / "fit.toml")


def test_lines_are_settings_and_cells_are_rows(tmp_path: Path) -> None:
    found = declared(tmp_path)
    one, four = "rate=1k, policy=constant(cores=1)", "rate=2k, policy=constant(cores=0.5)"
    four += ", profile:cpu.power_limit=120 W"
    # A cell without a number sets nothing; lines of the same settings are repeats.
    assert list(found.runs) == [one, four]
    assert found.runs[one]["policy"] == ["constant(cores=1)"] and len(found.runs[one]) == 5
    p99, watts, capped = found.baseline
    assert (p99.name, p99.paper, p99.unit) == (f"99th, {one}", 0.4, "ms")
    assert p99.of == "constant(cores=1)" and p99.source == one
    # A thousand of the twin's are one of the table's, and 30 % are more than the repeats differ by.
    assert p99.scale == 1000.0 and p99.uncertainty == pytest.approx(0.12)
    assert (watts.name, watts.paper, watts.uncertainty) == (f"watts, {one}", 300, 15)
    assert (capped.paper, capped.run) == (250, four)
    wide = declared(tmp_path, CSV.replace("2,8,-,0.5", "2,8,-,0.9"))
    assert wide.baseline[0].uncertainty == pytest.approx(0.3), "half of what repeats differ by"
    options = Variants(found, tmp_path / "out").options(four, [50.0])
    text = (tmp_path / "out" / options["profile"]).read_text()
    assert 'power_limit = "120 W"' in text and 'other = "50.0 W"' in text
    assert not any(":" in name for name in options)


def test_a_number_is_as_uncertain_as_its_last_digit(tmp_path: Path) -> None:
    text = HEAD.replace('"30%"', '"0.1%"').replace('"5%"', '"0.01%"')
    table = CSV.replace("2,8,-,0.5,", "1,8,-,4e2 us,9E1")
    p99, watts, p90, other, kilo = declared(tmp_path, table, text).baseline
    assert (p99.rounding, watts.rounding, other.rounding) == (0.05, 0.5, 5)
    assert p90.rounding == pytest.approx(0.05) and kilo.rounding == pytest.approx(5)
    assert p99.deviation == pytest.approx(0.05 / 3**0.5, rel=1e-3)


def test_lines_are_left_out_together_by_a_column(tmp_path: Path) -> None:
    text = HEAD.replace('"m.csv"\n', '"m.csv"\nsource = "{Cap (W)} W"\n')
    p99, watts, capped = declared(tmp_path, text=text).baseline
    assert p99.source == watts.source == p99.run and capped.source == "120 W"


@pytest.mark.parametrize(
    "table",
    [
        "\ufeff" + CSV.replace("\n", "\r\n"),
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        CSV + ",,,,\n",
        CSV.replace("300", "300 W"),
        CSV.replace("300", "0.300 kW"),
        # What people's tables are like: comments, a line of units, columns without name or cells.
        "# measured in May\n\n" + CSV,
        CSV.replace("99th (ms)", "99th").replace("\n", "\n-,,W,ms,\n", 1),
        CSV.replace("\n", ",,\n"),
        CSV.replace("0.25 kW\n", "0.25 kW,\n"),
        CSV.replace("300", "300 watts").replace("0.25 kW", '"250000 mW"'),
    ],
)
def test_forms_of_spreadsheets_are_the_same_table(tmp_path: Path, table: str) -> None:
    text = HEAD if "99th (ms)" in table else HEAD.replace("99th (ms)", "99th")
    found, plain = declared(tmp_path, table, text).baseline, declared(tmp_path).baseline
    # 250000 mW are written more exactly than 0.25 kW.
    assert [replace(row, rounding=0) for row in found] == [
        replace(row, rounding=0) for row in plain
    ]


def test_a_table_may_be_in_utf_16(tmp_path: Path) -> None:
    plain = declared(tmp_path).baseline
    (tmp_path / "m.csv").write_text(CSV.replace(",", "\t"), encoding="utf-16")
    assert declaration.read(tmp_path / "fit.toml").baseline == plain


@pytest.mark.parametrize(
    ("column", "cells", "setting", "told"),
    [
        ("load (kIOPS)", "20", 'rate = "{load (kIOPS)}k"', ("rate", "20k")),
        ("load (IOPS)", "20000", 'rate = "{load (IOPS)}k"', ("rate", "20k")),
        ("load (IOPS)", "20'000", 'rate = "{load (IOPS)}"', ("rate", "20000 IOPS")),
        ("IOPS×1000", "20", 'rate = "{IOPS×1000}"', ("rate", "20000 IOPS")),
        ("target_kiops", "20.0", 'rate = "{target_kiops}"', ("rate", "20000 IOPS")),
        ("load", "20k", 'rate = "{load}"', ("rate", "20000 IOPS")),
        ("load", "max", 'rate = "{load}"', ("rate", "max")),
        ("load (%)", "20", 'rate = "{load (%)}%"', ("rate", "20%")),
        ("load (kIOPS)", "40", 'rate = "{load (kIOPS) / 2}k"', ("rate", "20k")),
        ("load (IOPS)", "40e3", 'rate = "{load (IOPS) / 1000}k"', ("rate", "40k")),
        ("bs", "4k", 'block = "{bs}"', ("block", "4096 B")),
        ("block (KiB)", "4", 'block = "{block (KiB)} KiB"', ("block", "4 KiB")),
        ("block (KiB)", "4", 'block = "{block (KiB)}"', ("block", "4 KiB")),
        ("load (kIOPS)", "20", 'rate = "{load (kIOPS)}"', ("rate", "20 kIOPS")),
        ("block (B)", "4096", 'block = "{block (B)} KiB"', ("block", "4 KiB")),
        ("reads (%)", "70", 'read = "{reads (%)}"', ("read", "0.7")),
        ("reads (%)", "70", 'read = "{reads (%)}%"', ("read", "70%")),
        ("reads", "70%", 'read = "{reads}"', ("read", "0.7")),
        ("QD", "4.0", 'depth = "{QD}"', ("depth", "4")),
        ("f (MHz)", "1600", 'policy = "constant(ghz={f (MHz)})"', ("policy", "constant(ghz=1.6)")),
        ("CPU (%)", "50", '"profile:cpu.quota" = "{CPU (%) / 100}"', ("profile:cpu.quota", 0.5)),
        ("CPU (%)", "50", '"profile:cpu.quota" = "{CPU (%)}"', ("profile:cpu.quota", 0.5)),
        ("cap (mW)", "9000", '"profile:a.b" = "{cap (mW)} W"', ("profile:a.b", "9 W")),
        ("cap [W]", "9 kW", '"profile:a.b" = "{cap [W]}"', ("profile:a.b", "9000 W")),
        ("kind", "2-way", '"profile:a.b" = "{kind}"', ("profile:a.b", "2-way")),
        ("limit (kIOPS)", "9", '"profile:a.iops" = "{limit (kIOPS)}"', ("profile:a.iops", 9000)),
    ],
)
def test_settings_are_in_the_unit_that_they_state_or_take(
    tmp_path: Path, column: str, cells: str, setting: str, told: tuple[str, object]
) -> None:
    head, _, rest = HEAD.partition('rate = "{load / 2}k"')
    text = head + setting + "\n" + rest[rest.index("[[measured.values]]") :]
    text = text.replace('"99th (ms)"', '"ms"')
    (run,) = declared(tmp_path, f"{column},ms,Wall\n{cells},3,200\n", text).runs.values()
    found = run[told[0]]
    assert (found[0] if isinstance(found, list) else found) == told[1]


@pytest.mark.parametrize(
    ("column", "cells", "setting", "told"),
    [
        ("load", "20", '"{load}"', "m.csv:2: 'load' is in no unit, and rate is in IOPS"),
        ("load (W)", "20", '"{load (W)}k"', "m.csv:2: 'load (W)' is in W, and the setting in k"),
        ("load (W)", "20", '"{load (W)}"', "'load (W)' is in W, and rate is in IOPS"),
        ("load (IOPS)", "2", '"{load (IOPS) / 20}k"', "is in IOPS, and '{load (IOPS) / 20}' in k"),
        ("load", "some", '"{load}k"', "m.csv:2: 'load' is 'some', no number in k"),
        ("load", "20 us", '"{load}k"', "m.csv:2: 'load' is in us, and the setting in k"),
        ("load", "", '"{load}k"', "m.csv:2: 'load' is empty, and "),
    ],
)
def test_settings_in_other_units_are_refused_with_their_line(
    tmp_path: Path, column: str, cells: str, setting: str, told: str
) -> None:
    text = HEAD.replace('"{load / 2}k"', setting).replace('"99th (ms)"', '"ms"')
    text = text.replace('policy = "constant(cores={Cores / 8})"\n', "")
    text = text.replace('"profile:cpu.power_limit" = "{Cap (W)} W"\n', "")
    with pytest.raises(LabError) as error:
        declared(tmp_path, f"{column},ms,Wall\n{cells},3,200\n", text)
    assert told in str(error.value) and "set.rate" in str(error.value)


def test_merged_cells_are_those_of_the_line_above_if_this_is_stated(tmp_path: Path) -> None:
    plain = declared(tmp_path).baseline
    merged = CSV.replace("2,8,-,0.5,", ",,,0.5,")
    with pytest.raises(LabError, match="m.csv:3: 'load' is empty.*state empty = 'above'"):
        declared(tmp_path, merged)
    text = HEAD.replace('"m.csv"\n', '"m.csv"\nempty = "above"\n')
    assert declared(tmp_path, merged, text).baseline == plain
    text = text.replace('"above"', '"unset"')
    assert "rate" not in declared(tmp_path, merged, text).baseline[2].run
    with pytest.raises(LabError, match="empty: is 'down'"):
        declared(tmp_path, merged, text.replace('"unset"', '"down"'))


def test_percent_are_hundredths_of_a_field_without_unit() -> None:
    assert values.scale("w", "sla_excess", "%") == 0.01
    assert values.scale("w", "sla_excess * 100", "%") == values.scale("w", "iops", "IOPS") == 1.0


def test_a_cell_may_have_a_unit_of_its_own(tmp_path: Path) -> None:
    text = HEAD.replace('unit = "W"\nuncertainty', "uncertainty")
    table = CSV.replace("0.5,", "500 us,0.31 kW").replace("300", "300 W")
    p99, watts, capped = declared(tmp_path, table, text).baseline
    assert (p99.paper, p99.unit) == (0.4, "ms")
    assert (watts.paper, watts.unit, watts.scale) == (305, "W", 1)
    assert (capped.paper, capped.unit, capped.scale) == (0.25, "kW", 1000)


def test_decimal_signs_are_stated(tmp_path: Path) -> None:
    commas = CSV.replace(",", ";").replace(".", ",").replace("300", "1.300,5")
    text = HEAD.replace('"m.csv"\n', '"m.csv"\ndecimal = ","\n')
    found = declared(tmp_path, commas, text)
    assert [row.paper for row in found.baseline] == [0.4, 1300.5, 250]
    points = CSV.replace(",", ";").replace("300", "1,300.5")
    assert declared(tmp_path, points, text.replace('","', '"."')).baseline == found.baseline


@pytest.mark.parametrize(
    ("before", "after", "table", "told"),
    [
        ("", "", CSV.replace(",", ";").replace("300", "3,00"), "m.csv:2: 'Wall' is '3,00'"),
        ("", "", CSV.replace("300", '"1,300"'), "m.csv:2: 'Wall' is '1,300', and 'decimal'"),
        ("", "", CSV.replace("300", "fast"), "m.csv:2: 'Wall' is 'fast', which is no finite"),
        ("", "", CSV.replace("300", "inf"), "m.csv:2: 'Wall' is 'inf', which is no finite"),
        ("", "", CSV.replace("300", "300 us"), "m.csv:2: 'Wall': 'us' is no unit of 'mean_watts'"),
        ("_p99", "_p99 / 1", CSV.replace("0.5,", "5 us,"), "m.csv:3: '99th (ms)': is in us, and"),
        (
            'unit = "W"\nun',
            "un",
            CSV.replace("0.5,", ",3 kW"),
            "'Wall': is in no unit, and not in kW",
        ),
        ("", "", CSV.replace("4,4,", "4,few,"), "m.csv:4: 'Cores' is 'few', no number for Cores"),
        ("", "", CSV.replace("n/a", "n/a,1"), "m.csv:4: 6 fields, but the header has 5"),
        (
            "",
            "",
            CSV.replace(",300", ",0"),
            "m.csv:2: 'watts, rate=1k, policy=constant(cores=1)': is 0",
        ),
        ("", "", CSV.splitlines()[0], "there are no rows"),
        ("", "", "", "there are no rows"),
        ("", "", "Server A\n" + CSV, "m.csv:2: 5 fields, but the header has 1"),
        ("", "", "Server A,,,,\n" + CSV, "m.csv:1: column 2 has cells and no name"),
        ("", "", CSV.replace("300", "300*"), "m.csv:2: 'Wall': '*' is no unit of 'mean_watts'"),
        ("", "", CSV.replace("300", "300 mw"), "m.csv:2: 'Wall': 'mw' is no unit of 'mean_watts'"),
        ("", "", CSV.replace("300", "300±5"), "m.csv:2: 'Wall'"),
        ("", "", CSV.replace("Wall", "Cores"), "m.csv:1: column 'Cores' is there twice"),
        ("99th (ms)", "Cap (W)", CSV, "'W' is no unit of 'latency_us_p99', which is in µs"),
        ("", "", CSV.replace("300", "").replace("0.25 kW", ""), "column 'Wall' has no number"),
        ('unit = "W"\nuncert', "uncert", CSV.replace(" kW", ""), "Wall: unit: is not stated"),
        ('"Wall"', '"Wal"', CSV, "has no column 'Wal'. Did you mean 'Wall'?"),
        ("{load / 2}", "{laod / 2}", CSV, "set.rate: "),
        ("{load / 2}", "{load / 0}", CSV, "no number for load / 0"),
        ('"m.csv"', '"n.csv"', CSV, "n.csv: cannot be read"),
        ('"m.csv"', '"m.csv"\ndecimal = "x"', CSV, "decimal: is 'x'"),
        ('file = "m.csv"\n', "", CSV, "measured 1: 'file' is not stated"),
        ("latency_us_p99", "latency_us_p99 +", CSV, "99th (ms): value: 'latency_us_p99 +' is no"),
        ('uncertainty = "5%"', "", CSV, "'uncertainty' is not stated"),
        ('uncertainty = "5%"', 'certainty = "5%"', CSV, "no key 'certainty'. Did you mean"),
        (
            "profile:cpu.power_limit",
            "workload:jobs.x.depth",
            CSV,
            "no run's workload file has 'jobs",
        ),
        ("profile:cpu.power_limit", "profil:cpu", CSV, "set = 'profil:cpu' is no place"),
        ("profile:cpu.power_limit", "profile:board.other", CSV, "states 'profile:board.other' too"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
    table: str,
    told: str,
) -> None:
    assert before in HEAD
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "m.csv").write_text(table)
    (tmp_path / "fit.toml").write_text(HEAD.replace(before, after, 1))
    assert cli.main(["fit", str(tmp_path / "fit.toml"), "-o", str(tmp_path / "out"), "-q"]) == 2
    assert told in capsys.readouterr().err


def test_a_table_is_utf_8(tmp_path: Path) -> None:
    declared(tmp_path)
    (tmp_path / "m.csv").write_bytes(CSV.replace("ms", "\u00b5s").encode("latin-1"))
    with pytest.raises(LabError, match="m.csv:1: cannot be read.*Save it as UTF-8"):
        declaration.read(tmp_path / "fit.toml")


def test_units_are_those_of_the_value() -> None:
    assert values.scale("w", "mean_watts", "kW") == 1000.0
    for micro in ("us", "\u00b5s", "\u03bcs", "usec", "microseconds"):
        assert values.scale("w", "latency_us_mean", micro) == 1.0
    for thousand in ("kIOPS", "KIOPS", "kiops", "IOPS\u00d71000", "10^3 IOPS", "k ops/sec", "kops"):
        assert values.scale("w", "iops", thousand) == 1000.0
    assert values.scale("w", "bytes / seconds", "Mbps") == 125e3
    for either in ("mb/s", "mbps", "kb/s"):
        with pytest.raises(LabError, match=f"'{either}' is no unit of"):
            values.scale("w", "bytes / seconds", either)
    assert values.scale("w", "bytes / seconds", "MiB/s") == 2.0**20
    assert values.scale("w", "energy_joules_cpu / seconds", "W") == 1.0
    # Numbers in a value may convert it, and a unit may be unknown or not stated.
    assert values.scale("w", "iops / 1000", "kIOPS") == 1.0
    assert values.scale("w", "requests", "kIOPS") == values.scale("w", "iops", "") == 1.0


def simulated(profile: Path, *words: str) -> dict[str, float]:
    """What a server of which everything is known shows."""
    told = subprocess.run(
        [str(binary.find().path), "sim", "--profile", str(profile), "--workload", "rand-rw"]
        + ["--duration", "50 ms", "--seed", "9", "--json", "-q", *words],
        capture_output=True,
        check=True,
    )
    run = json.loads(told.stdout)["runs"][0]
    return {"w": run["mean_watts"], "ms": run["latency_us"]["mean"] / 1000}


def test_a_hidden_server_is_found_and_what_is_left_out_predicted(tmp_path: Path) -> None:
    """Parameters lead into the base's stages and into a drive that ships."""
    model = binary.shipped("generic-nvme")
    stages = binary.shipped("generic-1u")
    assert model and stages
    truth = tmp_path / "truth.toml"
    (tmp_path / "drive.toml").write_text(model.replace('"50 us"', '"75 us"'))
    text = stages.replace('"generic-nvme"', '"drive.toml"').replace(
        'other = "30 W"', 'other="80 W"'
    )
    truth.write_text(text.replace("14000.0\nwrite_cycles = 14000.0", "14000\nwrite_cycles=60000.0"))
    lines = ["load,block,mean lat (ms),wall"]
    for rate, block in ((2, 8), (8, 8), (8, 32)):
        found = simulated(truth, f"--rate={rate}k", f"--block={block} KiB")
        lines.append(f"{rate},{block},{found['ms']:.4f},{found['w']:.1f} W")
    (tmp_path / "m.csv").write_text("\n".join(lines[:3]))
    (tmp_path / "held.csv").write_text("\n".join([lines[0], lines[3]]))
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "fit.toml").write_text(
        'leave-out = "source"\n'
        + HEAD.partition("[[measured]]")[0].replace("= 8", "= 64", 1)
        + '[[free]]\nname = "read"\nset = "profile:drives.model.drive.read.latency"\n'
        'low = 40\nhigh = 110\nunit = "us"\nwhy = "w"\n'
        '[[free]]\nname = "cycles"\nset = "profile:stage.front-end.write_cycles"\n'
        'low = 10000\nhigh = 100000\nwhy = "w"\n'
        '[[measured]]\nfile = "m.csv"\nheld-out = "held.csv"\n[measured.set]\n'
        'rate = "{load}k"\nblock = "{block} KiB"\n'
        '[[measured.values]]\ncolumn = "wall"\nvalue = "mean_watts"\nuncertainty = "3%"\n'
        '[[measured.values]]\ncolumn = "mean lat (ms)"\nvalue = "latency_us_mean"\n'
        'uncertainty = "8%"\n'
    )
    out = tmp_path / "out"
    fit = study.run(tmp_path / "fit.toml", out, progress=False)
    low, high = fit.ranges[0]
    assert low <= 80 <= high and high - low < 30
    assert [each.error is not None and abs(each.error) < 0.1 for each in fit.left_out] == [True] * 4
    assert [row.row.run for row in fit.predictions] == ["rate=8k, block=32 KiB"] * 2
    assert "error of rows that were held out  predicted" in telling.tell(fit, out)
    for each in fit.predictions:
        assert each.mean == pytest.approx(each.row.paper, rel=0.1)


def test_repeats_that_differ_as_settings_would_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free, _, rest = HEAD.partition("[[free]]")
    table = CSV.replace("2,8,-,0.5,", "2,8,-,0.5,400")
    declared(tmp_path, table, free + "[[measured]]" + rest.partition("[[measured]]")[2])
    assert cli.main(["fit", str(tmp_path / "fit.toml"), "-o", str(tmp_path / "out"), "-q"]) == 0
    told = capsys.readouterr().out
    assert "differ by more than their uncertainty in 1 rows, most in 'watts, rate=1k" in told


def test_without_parameters_the_profile_is_judged_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free, _, rest = HEAD.partition("[[free]]")
    declared(tmp_path, text=free + "[[measured]]" + rest.partition("[[measured]]")[2])
    fit = ["fit", str(tmp_path / "fit.toml"), "-o", str(tmp_path / "out"), "-q"]
    assert cli.main(fit) == 0
    told = capsys.readouterr().out
    assert "nothing is free, the profile as it is" in told and "mean_watts" in told
    assert cli.main([*fit, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    schema = json.loads((ROOT / "docs" / "json-schema" / "lab-fit-2.json").read_text())
    jsonschema.validate(answer, schema)
    errors = [row["left_out"]["error"] for row in answer["baseline"]]
    central = [row["central"] / row["paper"] - 1 for row in answer["baseline"]]
    assert errors == pytest.approx(central) and max(map(abs, errors)) > 0.1


def test_bases_in_a_circle_and_missing_models_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HEAD.replace("profile:board.other", "profile:drives.model.drive.power.ready")
    declared(tmp_path, text=text)
    fit = ["fit", str(tmp_path / "fit.toml"), "-o", str(tmp_path / "out"), "-q"]
    mine = tmp_path / "mine.toml"
    mine.write_text(MINE.replace("generic-1u", "mine.toml"))
    assert cli.main(fit) == 2 and "mine.toml" in capsys.readouterr().err
    mine.write_text(MINE + '[drives]\nmodel = "none.toml"\n')
    assert cli.main(fit) == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err


def test_parameters_lead_into_hard_disks_too(tmp_path: Path) -> None:
    text = HEAD.replace("profile:board.other", "profile:drives.model.hdd.power.ready")
    text = text.replace("low = 20", "low = 7.82").replace("high = 100", "high = 7.95")
    text = text.replace('"5%"', '"90000%"').replace('"30%"', '"90000%"')
    mine = MINE + '[layout]\nraid = "raid6"\n[drives]\nmodel = "es3-4tb"\nqueue_depth = 32\n'
    declared(tmp_path, text=text)
    (tmp_path / "mine.toml").write_text(mine)
    fit = study.run(tmp_path / "fit.toml", tmp_path / "out", progress=False)
    assert fit.found.refused == 0


def test_names_of_cells_may_be_others_than_ours(tmp_path: Path) -> None:
    text = HEAD.replace('"constant(cores={Cores / 8})"', '"{gov}"')
    names = 'names = { schedutil = "ondemand" }\n'
    text = text.replace('file = "m.csv"', names + 'file = "m.csv"')
    table = CSV.replace("Cores", "gov").replace("2,8", "2,schedutil").replace("4,4", "4,native")
    found = declared(tmp_path, table, text).runs
    assert [run["policy"] for run in found.values()] == [["ondemand"], ["native"]]
    with pytest.raises(LabError, match="names: is no table of texts"):
        declared(tmp_path, table, text.replace(names, "names = 3\n"))


def test_errors_are_told_of_the_declared_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared(tmp_path)
    mine = tmp_path / "mine.toml"
    mine.write_text(MINE + '[cpu]\nuncor = "3 W"\n')
    fit = ["fit", str(tmp_path / "fit.toml"), "-o", str(tmp_path / "out"), "-q"]
    assert cli.main(fit) == 2
    told = capsys.readouterr().err
    assert f"{mine}" in told and "line 5" in told and "inputs/" not in told
    # The file is sound, but the range reaches what is no server.
    mine.write_text(MINE)
    text = HEAD.replace("low = 20\n", "low = -2000\n")
    (tmp_path / "fit.toml").write_text(text)
    assert cli.main(fit) == 2
    told = capsys.readouterr().err
    assert "is negative" in told and "Without the free parameters it runs: narrow a range" in told


def test_the_example_runs_as_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "examples" / "server", tmp_path / "server")
    path = tmp_path / "server" / "fit.toml"
    text = path.read_text()
    # As many rows as it has, but a search that ends at once.
    text = text.replace('leave-out = "source"', "").replace("points = 96", "points = 32")
    text = text.replace("{load (kIOPS)}", "{load (kIOPS) / 20}")
    for share in ("5%", "8%", "10%", "20%"):
        text = text.replace(f'uncertainty = "{share}"', 'uncertainty = "90%"')
    path.write_text(text)
    assert cli.main(["fit", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    told = capsys.readouterr().out
    assert "profile:cpu.power_limit=150 W" in told and "block=64 KiB" in told
    # The profile is the server without what a single setting states.
    assert "power_limit" not in (tmp_path / "out" / "central-profile.toml").read_text()
