"""The command line: what it takes and prints. Exit codes are `ebb`'s (docs/cli.md): 0 done,
1 the work failed, 2 wrong usage or input, 130 interrupted."""

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebb_lab import text
from ebb_lab.errors import LabError
from ebb_lab.trial import command as trial

if TYPE_CHECKING:
    from ebb_lab.experiments import Status

ABOUT = """\
Experiments with power policies of storage servers, and what they show.

  ebb-lab run grid.toml -o results      simulate every combination of a grid, on all cores
  ebb-lab status results                what is done, what failed, how long it will take
  ebb-lab compare results --by policy --value mean_watts
                                        medians with intervals, tests, effect sizes
  ebb-lab plan --trace day.csv.gz --candidate asg-1115s --candidate generic-1u
                                        how many servers, kWh, cost, CO2, latency
  ebb-lab tune study.toml -o tuned      search a policy's parameters, judge them on other loads
  ebb-lab fit fit.toml -o fitted        fit free parameters to a baseline, predict the policy's rows
  ebb-lab figures -o figures            the papers' figures, their numbers beside the twin's
  ebb-lab trial --policy pacer -o trial what a policy does on this live server, with intervals
"""


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    args = parse(words)
    args.words = sys.argv[1:] if words is None else words
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


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command, and the command; exits where the words are none."""
    return _parser().parse_args(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ebb-lab", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_run(commands)
    _add_status(commands)
    _add_compare(commands)
    _add_plan(commands)
    _add_tune(commands)
    _add_fit(commands)
    _add_figures(commands)
    trial.add(commands)
    return parser


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
    _add_work(parser)
    parser.set_defaults(command=_run)


def _add_work(parser: argparse.ArgumentParser) -> None:
    """The options of what takes many runs and can go on later."""
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="results")
    parser.add_argument(
        "--workers", type=int, metavar="NUMBER", help="runs at once here (default: one per core)"
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="run on the Dask cluster of this scheduler instead"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")


def _run(args: argparse.Namespace) -> int:
    from ebb_lab import experiments

    status = experiments.run(
        args.grid, args.out, client=_client(args), workers=args.workers, progress=not args.quiet
    )
    _tell_status(status, args.json)
    return 1 if status.failed or status.done < status.total else 0


def _client(args: argparse.Namespace) -> Any:
    """The Dask cluster that was asked for; None where the work is done here."""
    if not args.dask:
        return None
    if args.workers:
        raise LabError("--workers", "the cluster of --dask has its own", "Leave one of them out")
    address = args.dask
    try:
        from distributed import Client
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
    from ebb_lab import experiments

    _tell_status(experiments.status(args.folder), args.json)
    return 0


def _tell_status(status: "Status", as_json: bool) -> None:
    if as_json:
        return text.print_json({"schema": 1} | dataclasses.asdict(status))
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
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="also draw medians and intervals: SVG, PDF, PNG"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_compare)


def _compare(args: argparse.Namespace) -> int:
    from ebb_lab import comparing, figures, tables

    if args.figure:
        figures.check(args.figure)
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
    if args.figure:
        figures.write(found, args.figure)
    if args.json:
        text.print_json(comparing.as_json(found))
    else:
        print("\n\n".join(comparing.tell(each) for each in found))
    return 0


def _names(joined: str) -> list[str]:
    return [name.strip() for name in joined.split(",") if name.strip()]


def _add_plan(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="how many of which servers a trace takes, and what they cost",
        description="Finds for each candidate server how many keep the p99 latency of a trace, "
        "and what they draw, cost and emit over the years; modelled by the digital twin.",
        epilog="Example: ebb-lab plan --trace examples/office.csv.gz --rate-scale 50 --candidate "
        '"generic-1u, price=9000" --candidate "asg-1115s, price=24000" --p99 "2 ms"',
    )
    add = parser.add_argument
    add("--trace", action="append", required=True, metavar="FILE", help="any format; repeatable")
    add("--rate-scale", metavar="FACTOR", help="play the trace faster by this factor")
    add("--from", dest="start", metavar="TIME", help="only requests from this time on")
    add("--to", metavar="TIME", help="only requests before this time")
    add(
        "--candidate",
        action="append",
        required=True,
        metavar="PROFILE[, price=NUMBER][, holds=SIZE]",
        help="a server: shipped profile or file, its price and what data it can hold; repeatable",
    )
    add("--policy", action="append", metavar="NAME", help="repeatable; the first sets the number")
    add("--p99", default="10 ms", metavar="TIME", help="p99 latency to keep (default 10 ms)")
    add("--data", metavar="SIZE", help="what the servers have to hold together")
    add("--years", type=float, default=5.0, metavar="NUMBER", help="default 5")
    add("--energy-price", type=float, default=0.25, metavar="NUMBER", help="per kWh (default 0.25)")
    add("--currency", default="EUR", metavar="NAME", help="of prices (default EUR)")
    add("--carbon", type=float, default=300.0, metavar="NUMBER", help="g CO2 per kWh (default 300)")
    add("--pue", type=float, default=1.0, metavar="NUMBER", help="of the building (default 1)")
    add("--seeds", type=int, default=10, metavar="NUMBER", help="at least 5 (default 10)")
    add("--most", type=int, default=64, metavar="NUMBER", help="servers at most (default 64)")
    add("--workers", type=int, metavar="NUMBER", help="runs at once (default: one per core)")
    add("--page", type=Path, metavar="FILE", help="also write a page, self-contained HTML")
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_plan)


def _plan(args: argparse.Namespace) -> int:
    from ebb_lab import binary, fields, page, planning

    cut = (("--rate-scale", args.rate_scale), ("--from", args.start), ("--to", args.to))
    question = planning.Question(
        traces=tuple(args.trace),
        candidates=tuple(planning.candidate(each) for each in args.candidate),
        policies=tuple(args.policy or ["native"]),
        p99_us=fields.scaled(args.p99, fields.MICROSECONDS, "--p99"),
        years=args.years,
        energy_price=args.energy_price,
        currency=args.currency,
        carbon_g_per_kwh=args.carbon,
        pue=args.pue,
        data_bytes=fields.scaled(args.data, fields.BYTES, "--data") if args.data else None,
        seeds=args.seeds,
        most=args.most,
        options=tuple(f"{name}={value}" for name, value in cut if value is not None),
    )
    if args.page and not args.page.resolve().parent.is_dir():
        raise LabError(f"--page {args.page}", "no such folder", "Make it, or name another file")
    answer = planning.plan(question, args.workers)
    if args.page:
        page.write(answer, args.page, f"ebb-lab {shlex.join(args.words)}", binary.find().version)
    if args.json:
        text.print_json(planning.as_json(answer))
    else:
        print(planning.tell(answer))
    return 0


def _add_tune(commands: Any) -> None:
    parser = commands.add_parser(
        "tune",
        help="search a policy's parameters on some loads, judge them on others",
        description="Searches parameters of a policy with Optuna on training loads, then compares "
        "the best with the policy's defaults on held-out loads and seeds: that is the verdict. "
        "Interrupted or killed, the same command goes on where it was.",
        epilog="docs/lab.md describes the file. Example: ebb-lab tune study.toml -o tuned",
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="the study, a TOML file")
    _add_work(parser)
    parser.set_defaults(command=_tune)


def _tune(args: argparse.Namespace) -> int:
    from ebb_lab import tuning

    result = tuning.tune(
        args.study,
        args.out,
        client=_client(args),
        workers=args.workers,
        progress=not args.quiet,
    )
    if args.json:
        text.print_json(tuning.as_json(result))
    else:
        print(tuning.tell(result))
    return 0


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="fit what a text leaves open to its baseline, then predict its policy's rows",
        description="Finds the region of declared free parameters where the published or measured "
        "numbers of a baseline come out of the twin, and predicts a policy's rows, or lines that "
        "were left out, over that region, the published number beside each. Interrupted or "
        "killed, the same command goes on where it was.",
        epilog="docs/lab.md describes the file, docs/profiles.md how to fit a server that you "
        "measured. Example: ebb-lab fit examples/server/fit.toml -o fitted",
    )
    parser.add_argument("declaration", type=Path, metavar="FIT", help="the declaration, TOML")
    _add_work(parser)
    parser.set_defaults(command=_fit)


def _fit(args: argparse.Namespace) -> int:
    from ebb_lab.fitting import nearest, outcome, study, telling

    try:
        fit = study.run(
            args.declaration,
            args.out,
            client=_client(args),
            workers=args.workers,
            progress=not args.quiet,
        )
    except nearest.UnmetError as error:
        outcome.write_nearest(error.nearest, args.out)
        if not args.json:
            print(telling.tell_nearest(error.nearest))
        raise
    outcome.write(fit, args.out)
    if args.json:
        text.print_json(outcome.as_json(fit, args.out))
    else:
        print(telling.tell(fit, args.out))
    return 0


def _add_figures(commands: Any) -> None:
    parser = commands.add_parser(
        "figures",
        help="draw the papers' figures, their numbers beside the twin's",
        description="Repeats the papers' evaluations in the twin ('ebb paper', some for minutes) "
        "and draws every figure, and all stated numbers of a paper in one. DIR/NAME.json keeps the "
        "results: named instead of the paper, it is only drawn.",
        epilog="Example: ebb-lab figures -o figures eadc --format svg",
    )
    parser.add_argument(
        "papers",
        nargs="*",
        metavar="PAPER",
        help="name or file of 'ebb paper --json' (default: all)",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="figures")
    parser.add_argument(
        "--format", default="pdf,svg,png", metavar="NAME,…", help="default pdf,svg,png"
    )
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument("--duration", metavar="TIME", help="simulated time of each run")
    parser.add_argument(
        "--dpi", type=int, default=200, metavar="NUMBER", help="of PNG; default 200"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="show no progress")
    parser.set_defaults(command=_figures)


def _figures(args: argparse.Namespace) -> int:
    from ebb_lab import paper_figures

    words = [f"--figure={name}" for name in args.figure]
    words += [f"--duration={args.duration}"] if args.duration else []
    words += ["--quiet"] if args.quiet else []
    formats = _names(args.format)
    for path in paper_figures.draw(
        args.papers, args.out, formats=formats, words=words, dpi=args.dpi
    ):
        print(path)
    return 0
