#!/usr/bin/env python3
"""Runs figures of a paper and keeps their rows in `studies/NAME/results.json`, with what made them.

    python3 studies/keep.py pacer                  what takes a minute
    python3 studies/keep.py pacer --figure 17      this figure
    python3 studies/keep.py pacer --full           all

Words after the name are options of `ebb paper`; traces of `sandman` need EBB_DATA. The binary is
`ebb` of the variable EBB, or target/release/ebb. Then EBB_WRITE_DOCS=1 cargo test --workspace
--locked --bins -- paper::page writes the study's page again.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = ("id", "twin", "range", "note")


def merged(
    old: dict[str, Any], report: dict[str, Any], command: str, commit: str
) -> dict[str, Any]:
    """The old results with the rows that this report computed; in its order if it has them all."""
    made = {"command": command, "version": report["version"], "commit": commit}
    made["sources"] = report["sources"]
    rows = {
        row["id"]: {name: row[name] for name in KEPT if name in row} | {"made": made}
        for row in report["rows"]
        if "id" in row and not row.get("kept")
    }
    before = {row["id"]: row | {"made": old["runs"][row["run"]]} for row in old["rows"]}
    order = rows if rows.keys() >= before.keys() else before | rows
    found = [rows.get(name) or before[name] for name in order]
    runs: list[dict[str, str]] = []
    for row in found:
        made = row.pop("made")
        runs += [made] if made not in runs else []
        row["run"] = runs.index(made)
    return {"runs": runs, "rows": found}


def written(results: dict[str, Any]) -> str:
    """As JSON, a row a line."""
    lines = [
        f'  "{name}": [\n    '
        + ",\n    ".join(json.dumps(each, ensure_ascii=False) for each in results[name])
        + "\n  ]"
        for name in ("runs", "rows")
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def output(*words: str) -> str:
    """What a command prints; if it fails it has said why."""
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    name, *options = sys.argv[1:]
    ebb = os.environ.get("EBB", str(HERE.parent / "target/release/ebb"))
    command = ["ebb", "paper", name, *(options or ["--run"])]
    report = json.loads(output(ebb, *command[1:], "--json"))
    commit = output("git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD").strip()
    file = HERE / name / "results.json"
    old = json.loads(file.read_text(encoding="utf-8"))
    traces = "EBB_DATA=... " if name == "sandman" and "EBB_DATA" in os.environ else ""
    results = merged(old, report, traces + shlex.join(command), commit)
    file.write_text(written(results), encoding="utf-8")


if __name__ == "__main__":
    main()
