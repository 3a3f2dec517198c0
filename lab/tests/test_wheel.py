"""The wheel as pip builds and installs it. Its binary is a stand-in, which builds in a second;
`EBB` names the real one."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ebb_lab import binary

LAB = Path(__file__).parents[1]
CRATE = """\
[package]
name = "ebb"
version = "0.0.1"
edition = "2024"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment in which the wheel is the only thing installed."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(LAB, folder / "lab", ignore=shutil.ignore_patterns(".*", "dist", "tests"))
    crate = folder / "crates" / "ebb"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text(CRATE)
    (crate / "src" / "main.rs").write_text("fn main() {}\n")
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(folder / "target"),
        "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",
    }

    def done(*words: str | Path) -> None:
        subprocess.run([sys.executable, "-m", *words], check=True, env=environment)

    done("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, folder / "lab")
    done("venv", "--without-pip", folder / "new")
    wheel = next(folder.glob("ebb_lab-*.whl"))
    python = folder / "new" / "bin" / "python"
    done("pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    # What the wheel depends on is that of these tests.
    packages = next((folder / "new").glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def test_the_commands_of_the_wheel_start(installed: Path) -> None:
    subprocess.run([installed / "ebb"], check=True)
    told = subprocess.run(
        [installed / "ebb-lab", "--help"], check=True, capture_output=True, text=True
    )
    assert "ebb-lab run grid.toml" in told.stdout


def test_an_installed_lab_simulates(installed: Path, grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run(
        [installed / "ebb-lab", "run", grid, "-q", "-o", out],
        check=True,
        env=os.environ | {"EBB": str(binary.find().path)},
    )
    assert (out / "dataset.parquet").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "none.toml", "-o", "out"],
        ["tune", "none.toml", "-o", "out"],
        ["run", "none.toml", "-o", "out"],
        ["compare", "none.csv", "--by", "a", "--value", "b"],
        ["plan", "--trace", "none.csv", "--candidate", "generic-1u"],
        ["figures", "none.json", "-o", "out"],
    ],
    ids=lambda words: words[0],
)
def test_a_wrong_file_name_is_told_before_heavy_libraries_load(
    words: list[str], tmp_path: Path
) -> None:
    look = (
        "import sys; from ebb_lab.cli import main; code = main(sys.argv[1:]); "
        "print(sorted({'matplotlib', 'pandas', 'scipy', 'statsmodels'} & sys.modules.keys())); "
        "sys.exit(code)"
    )
    told = subprocess.run(
        [sys.executable, "-c", look, *words],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"EBB": str(binary.find().path), "PYTHONPATH": str(LAB / "src")},
        text=True,
    )
    assert told.returncode == 2
    assert "none." in told.stderr
    assert told.stdout == "[]\n"
