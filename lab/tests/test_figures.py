"""`ebb-lab figures`: curves find their axes, nothing is clipped, both numbers can be read."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

from ebb_lab import binary, cli, drawing, paper_figures, papers
from ebb_lab.papers import Line, Panel


def row(figure: str, quantity: str, paper: float, twin: float | None, kind: str) -> dict[str, Any]:
    deviation = None if twin is None else twin / paper - 1
    told = {"figure": figure, "quantity": quantity, "paper": paper, "twin": twin, "kind": kind}
    return told | {"deviation": deviation} | ({"note": "no saving"} if twin is None else {})


def curve(series: str, figure: str = "Fig. 6", points: int = 3) -> dict[str, Any]:
    x = [float(at + 1) for at in range(points)]
    return {"figure": figure, "series": series, "x": x, "y": [2 * at for at in x]}


LONG = (
    "mean latency with 63 % of cores (minimal impact), geometric mean over patterns, 10 % load, x"
)
REPORT: dict[str, Any] = {
    "schema": 3,
    "rows": [
        row("Fig. 6", "IOPS/W of PACER, x", 1.18, 1.09, "as-stated"),
        row("Fig. 6", LONG, 1.19, 8.72, "as-stated"),
        row("Table I", "SSD at 100 % load, W", 13.3, 13.3, "calibrated"),
        row("Fig. 6", "saving over JETC's, x", 1.8, None, "reinterpreted"),
        row("Fig. 6", "two below one, %", 85.0, 84.0, "predicted") | {"range": [70.0, 91.0]},
        {
            "figure": "Fig. 6",
            "quantity": "not stated, W",
            "paper": None,
            "twin": 47.25,
            "range": [40.0, 50.0],
            "kind": "modelled",
            "deviation": None,
        },
    ],
    "curves": [
        curve("mean latency over share of frequency, 10 % pressure"),
        curve("mean latency over share of frequency, 100 % pressure"),
        curve("IOPS/W over share of frequency, 10 % pressure"),
        curve("IOPS/W over share of frequency, 100 % pressure"),
        *(curve(f"a policy with quite a long name {at}: W over kIOPS", "Loads") for at in range(9)),
        curve("W, by configuration in their order", "Loads", points=9),
        curve("seconds until pacer has all cores back", "Loads", points=1),
        curve("head-room, K, over the hottest socket, °C; inlet 15 °C", "Fig. 4"),
        curve("head-room, K, over the hottest socket, °C; inlet 20 °C", "Fig. 4"),
    ],
}


@pytest.mark.parametrize(
    ("series", "panel", "label"),
    [
        ("fans, W, over the hottest socket, °C", Panel("the hottest socket, °C", "W"), "fans"),
        ("Sandman: p99, us over kIOPS", Panel("kIOPS", "p99, us"), "Sandman"),
        ("mean latency over pressure, plf 0.1", Panel("pressure", "mean latency"), "plf 0.1"),
        ("IOPS of pacer over seconds, us", Panel("seconds", "IOPS, us"), "pacer"),
        ("Linux: latency, us, by percentile", Panel("percentile", "latency, us"), "Linux"),
        (
            "a: b: 1 mean, 2 p99, 3 IOPS/W",
            Panel("", "x of native's", ("mean", "p99", "IOPS/W")),
            "a: b",
        ),
        (
            "jetc: wait over dlb, %, on Q, E2, E4",
            Panel("", "wait over dlb, %", ("Q", "E2", "E4")),
            "jetc",
        ),
        (
            "eadc: wait over dlb, %, on E6 with query 19, by inlet, °C",
            Panel("inlet, °C", "wait over dlb, %"),
            "eadc, on E6 with query 19",
        ),
        ("A: percent of requests below us, a day", Panel("us", "percent of requests"), "A, a day"),
        ("Sandman's saving, %, over W of a core", Panel("W of a core", "%"), "Sandman's saving"),
        ("something else", Panel("", "something else"), ""),
    ],
)
def test_curves_say_their_axes(series: str, panel: Panel, label: str) -> None:
    # Beside one that shares nothing, so that nothing moves into the title.
    other = {"figure": "Fig. 6", "series": series, "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    found, *_ = papers.panels([other, curve("z over y")])
    assert (found.x, found.y, found.names) == (panel.x, panel.y, panel.names)
    told = ", ".join(part for part in (found.lines[0].label, found.title) if part)
    assert sorted(told.split(", ")) == sorted(label.split(", "))


def test_what_all_curves_share_is_said_once() -> None:
    (panel,) = papers.panels([curve(f"{name}: W over s, a day") for name in "AB"])
    assert panel.title == "a day"
    assert [line.label for line in panel.lines] == ["A", "B"]
    (panel,) = papers.panels([curve(f"room, K, over °C; inlet {at}") for at in (1, 2)])
    assert (panel.y, panel.title) == ("room, K", "")
    assert panel.lines[0] == Line("inlet 1", (1.0, 2.0, 3.0), (2.0, 4.0, 6.0))


def test_nothing_is_clipped_or_covered(tmp_path: Path) -> None:
    """All that is drawn lies on the page, and no text lies on another."""
    path = tmp_path / "pacer.json"
    path.write_text(json.dumps(REPORT))
    names = []
    with drawing.pyplot(100) as plt:
        figures = papers.read(binary.find(), str(path), tmp_path, ())
        for name, figure in paper_figures.drawn(plt, figures):
            names.append(name)
            figure.canvas.draw()
            width, height = figure.get_size_inches()
            drawn = figure.get_tightbbox()
            assert drawn.x0 > -0.01 and drawn.x1 < width + 0.01, name
            assert drawn.y0 > -0.01 and drawn.y1 < height + 0.01, name
            if name == "pacer-rows":
                told = {text.get_text() for text in texts(figure)}
                assert {"1.18 → 1.09", "1.19 → 8.72  (+633%)", "1.8 → no saving"} <= told
                assert {"85 → 84", "47.2"} <= told
            boxes = [
                (text.get_text(), text.get_window_extent().shrunk(0.9, 0.8))
                for text in texts(figure)
                if text.get_text().strip() and text.get_rotation() == 0
            ]
            for index, (text, box) in enumerate(boxes):
                for other, beside in boxes[index + 1 :]:
                    assert not box.overlaps(beside), (name, text, other)
    assert names == ["pacer-fig-6", "pacer-table-i", "pacer-loads", "pacer-fig-4", "pacer-rows"]


def texts(figure: Any) -> list[Text]:
    """Every text that is drawn: ticks beyond an axis's end are not."""
    ticks = [
        tick
        for axes in figure.findobj(Axes)
        if axes.axison
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
    ]
    hidden = {id(text) for tick in ticks for text in (tick.label1, tick.label2)}
    for axes in figure.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            hidden -= {id(tick.label1) for tick in axis._update_ticks()}
    return [text for text in figure.findobj(Text) if id(text) not in hidden]


def test_figures_are_written_in_every_format_and_again_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pacer.json"
    path.write_text(json.dumps({"rows": REPORT["rows"][:1], "curves": []}))
    texts = []
    for out in (tmp_path / "a", tmp_path / "b"):
        assert cli.main(["figures", "-o", str(out), str(path)]) == 0
        files = capsys.readouterr().out.split()
        assert [Path(file).name for file in files[:3]] == [
            f"pacer-fig-6.{kind}" for kind in ("pdf", "svg", "png")
        ]
        texts.append([Path(file).read_bytes() for file in files])
    assert texts[0] == texts[1]
    drawn = (tmp_path / "a" / "pacer-fig-6.svg").read_text()
    assert "IOPS/W of PACER" in drawn and "1.18 → 1.09" in drawn


def test_a_paper_is_simulated_and_kept(tmp_path: Path) -> None:
    words = ["figures", "-o", str(tmp_path), "eadc", "--figure", "3", "--format", "svg", "-q"]
    assert cli.main(words) == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"eadc.json", "eadc-fig-3.svg", "eadc-rows.svg"}
    assert "power (W)" in (tmp_path / "eadc-fig-3.svg").read_text()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["pacre"], 2, "Did you mean 'pacer'"),
        (["none.json"], 2, "none.json: No such file"),
        ([str(Path(__file__).parents[2] / "docs/json-schema/paper-6.json")], 2, "no output of ebb"),
        (["eadc", "--format", "gif"], 2, "There are pdf, png, svg"),
        (["eadc", "--figure", "99", "-q"], 1, "ebb paper eadc: exit code"),
    ],
)
def test_bad_wishes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert cli.main(["figures", "-o", str(tmp_path), *words]) == code
    assert told in capsys.readouterr().err
