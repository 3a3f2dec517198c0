"""The command line: what it takes and prints. Exit codes are `ebb`'s (docs/cli.md): 0 done,
1 the work failed, 2 wrong usage or input, 130 interrupted."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebb_lab import text
from ebb_lab.errors import LabError

if TYPE_CHECKING:
    from ebb_lab.experiments import Status

ABOUT = """\
Experiments with power policies of storage servers, and what they show.

  ebb-lab run grid.toml -o results      simulate every combination of a grid, on all cores
  ebb-lab status results                what is done, what failed, how long it will take
  ebb-lab compare results --by policy --value mean_watts
                                        medians with intervals, tests, effect sizes
"""


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    parser = _parser()
    args = parser.parse_args(words)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # A reader such as `head` has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebb-lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_run(commands)
    _add_status(commands)
    _add_compare(commands)
    return parser


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2))


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="simulate every combination of a grid",
        description="Runs 'ebb sim' for every combination of options that a TOML file states, and "
        "collects all results in DIR/dataset.parquet. Interrupted or killed, the same command "
        "goes on where it was.",
        epilog="docs/lab.md describes the file. Example: ebb-lab run grid.toml -o results",
    )
    parser.add_argument("grid", type=Path, metavar="GRID", help="the grid, a TOML file")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="results")
    parser.add_argument(
        "--workers", type=int, metavar="NUMBER", help="runs at once here (default: one per core)"
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="run on the Dask cluster of this scheduler instead"
    )
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")
    parser.set_defaults(command=_run)


def _run(args: argparse.Namespace) -> int:
    from ebb_lab import experiments  # noqa: PLC0415

    if args.dask and args.workers:
        raise LabError("--workers", "the cluster of --dask has its own", "Leave one of them out")
    client = _dask(args.dask) if args.dask else None
    status = experiments.run(
        args.grid, args.out, client=client, workers=args.workers, progress=not args.quiet
    )
    _tell_status(status, args.json)
    return 1 if status.failed or status.done < status.total else 0


def _dask(address: str) -> Any:
    try:
        from distributed import Client  # noqa: PLC0415
    except ImportError as error:
        raise LabError("--dask", "Dask is not installed", "pip install 'ebb-lab[dask]'") from error
    try:
        return Client(address, timeout=20)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise LabError(
            f"--dask {address}", f"no scheduler answers: {error}", "Such as tcp://host:8786"
        ) from error


def _add_status(commands: Any) -> None:
    parser = commands.add_parser(
        "status",
        help="how far experiments are",
        description="Tells how many runs of a folder are done, which failed and why, and how long "
        "the rest will take; also while they run.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the -o of 'ebb-lab run'")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_status)


def _status(args: argparse.Namespace) -> int:
    from ebb_lab import experiments  # noqa: PLC0415

    _tell_status(experiments.status(args.folder), args.json)
    return 0


def _tell_status(status: "Status", as_json: bool) -> None:
    if as_json:
        return _print_json({"schema": 1} | dataclasses.asdict(status))
    print(f"{status.name}: {status.done} of {status.total} runs done, {status.failed} failed")
    if status.done < status.total and status.seconds_left is not None:
        left = text.duration(status.seconds_left)
        going = "running" if status.running else "not running: the same 'ebb-lab run' goes on"
        print(f"  about {left} left with {status.workers} workers; {going}")
    for _, reason in status.failures[:5]:
        print(f"  failed: {reason}")
    if len(status.failures) > 5:
        print(f"  and {len(status.failures) - 5} more; --json lists them")
    if status.dataset:
        print(f"  dataset: {status.dataset}")
    return None


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare groups of repeats: medians, tests, effect sizes",
        description="Compares groups of repeats by the method of the storage-servers study: "
        "Lilliefors' test of normality, medians with bootstrap intervals, Kruskal-Wallis, Dunn's "
        "test with a correction, Cliff's delta. Says 'no difference shown' where that is so, and "
        "computes nothing from data that allow no test.",
        epilog="Example: ebb-lab compare results --by policy --within profile,workload "
        "--value mean_watts --value latency_us_p99",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="CSV, Parquet, JSON lines, output of 'ebb sim --json', or a folder of 'ebb-lab run'",
    )
    parser.add_argument("--by", required=True, metavar="COLUMN", help="what tells groups apart")
    parser.add_argument(
        "--value",
        required=True,
        action="append",
        metavar="COLUMN",
        help="what is compared; repeat it for several",
    )
    parser.add_argument(
        "--within",
        default="",
        metavar="COLUMN,…",
        help="rows that agree in these are one experiment, compared on its own",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="use only these rows; repeat it for several conditions",
    )
    parser.add_argument(
        "--groups",
        default="",
        metavar="NAME,…",
        help="compare these groups in this order, the first is the reference (default: all)",
    )
    parser.add_argument(
        "--repeat",
        metavar="COLUMN",
        help="what tells repeats apart; one may not come twice (default: seed, repeat or run)",
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="level of tests (default 0.05)")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="of intervals (default 0.95)"
    )
    parser.add_argument(
        "--correction",
        choices=("holm", "bonferroni", "fdr_bh", "none"),
        default="holm",
        help="of Dunn's p for the number of pairs (default holm)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_compare)


def _compare(args: argparse.Namespace) -> int:
    from ebb_lab import comparing, tables  # noqa: PLC0415 - SciPy takes a second to load

    question = comparing.Question(
        by=args.by,
        values=args.value,
        within=_names(args.within),
        where=args.where,
        groups=_names(args.groups),
        alpha=args.alpha,
        confidence=args.confidence,
        correction=args.correction,
        repeat=args.repeat,
    )
    found = comparing.compare(tables.read(args.files), question)
    if args.json:
        _print_json(comparing.as_json(found))
    else:
        print("\n\n".join(comparing.tell(each) for each in found))
    return 0


def _names(joined: str) -> list[str]:
    return [name.strip() for name in joined.split(",") if name.strip()]
