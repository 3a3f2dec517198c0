"""`ebb-lab trial` on the command line."""

import argparse
import platform
import sys
from pathlib import Path
from typing import Any

from ebb_lab import fields, text
from ebb_lab.trial.design import Design

_SHARES = {"%": 0.01, "": 1.0}


def add(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "trial",
        help="what a policy does on this server: native and policy in turn, with intervals",
        description="Alternates native (ebb run observes) and a policy (ebb run --apply) on this "
        "live server, in pairs of blocks in random order, and says what differed: power, bytes "
        "per joule, latency, with intervals. Stops at once and sets everything back when latency "
        "leaves the bound. Interrupted or killed, the same command goes on where it was.",
        epilog="docs/lab.md says how to read the page. Example: sudo ebb-lab trial --minutes 60 "
        "--policy pacer+pacman -o trial",
    )
    default = Design("")
    option = parser.add_argument
    option("-o", "--out", type=Path, required=True, metavar="DIR", help="blocks, samples, page")
    option("--policy", required=True, metavar="NAME[+NAME]", help="as of 'ebb run'")
    option("--minutes", type=float, default=60.0, metavar="NUMBER", help="of blocks (default 60)")
    option("--block", default="3 min", metavar="TIME", help="length of a block (default 3 min)")
    option(
        "--washout",
        default="30 s",
        metavar="TIME",
        help="at the start of each block, recorded and not counted (default 30 s)",
    )
    option(
        "--tolerate",
        default="20%",
        metavar="SHARE",
        help="how far mean latency may rise above native before all is stopped (default 20%%)",
    )
    option("--window", default="10 s", metavar="TIME", help="of that mean latency (default 10 s)")
    option("--seed", type=int, default=default.seed, metavar="NUMBER", help="of the order")
    option("--confidence", type=float, default=default.confidence, help="of intervals (0.95)")
    option("--config", type=Path, metavar="FILE", help="of 'ebb run'")
    option("--state", type=Path, metavar="DIR", help="of 'ebb run' and 'ebb restore'")
    # A copy of a machine's files, as of `ebb run`.
    option("--root", type=Path, help=argparse.SUPPRESS)
    option("--json", action="store_true", help="print JSON")
    option("--quiet", "-q", action="store_true", help="show no progress")
    parser.set_defaults(command=_trial)


def _trial(args: argparse.Namespace) -> int:
    from ebb_lab import binary
    from ebb_lab.trial import course, design, judging, telling
    from ebb_lab.trial.running import SECONDS, Ebb, Ending

    asked = Design(
        policy=args.policy,
        minutes=args.minutes,
        block_s=fields.scaled(args.block, SECONDS, "--block"),
        washout_s=fields.scaled(args.washout, SECONDS, "--washout"),
        tolerate=fields.scaled(args.tolerate, _SHARES, "--tolerate"),
        window_s=fields.scaled(args.window, SECONDS, "--window"),
        confidence=args.confidence,
        seed=args.seed,
    )
    design.check(asked)
    found = binary.find()
    with Ending() as ending:
        ebb = Ebb(found.path, asked.policy, ending, args.config, args.state, args.root)
        configuration = ebb.configuration()
        ebb.check()
        about = {
            "version": found.version,
            "sha256": found.sha256,
            "host": platform.node(),
            "configuration": configuration,
            "root": str(args.root.resolve()) if args.root else "/",
        }
        done = course.run(
            asked,
            args.out,
            ebb,
            about=about,
            say=(lambda _: None) if args.quiet else (lambda line: print(line, file=sys.stderr)),
        )
    verdict = judging.judge(done)
    telling.write(verdict, args.out)
    if args.json:
        text.print_json(telling.as_json(verdict))
    else:
        print(telling.tell(verdict, args.out))
    return {"complete": 0, "interrupted": 130}.get(done.end, 1)
