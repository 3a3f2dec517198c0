"""What each policy changes on the running server: watts at the wall, true in the twin behind the
hardware, and the latency of fio, in pairs of blocks with the policy and without it."""

import contextlib
import random
import re
import time

import paired
import server
from acting import start_fio, stop_fio
from bed import Failure, expect, until
from results import Results
from steps import PATIENCE
from trial import Machine, joules

# What fio does on each drive.
LOADS = {
    "idle": None,
    "steady": "--iodepth=4 --rate_iops=30",
    "bursty": "--iodepth=4 --thinktime=2s --thinktime_blocks=60",
    "closed": "--iodepth=4",
}
# Each request with its time of day, so that those of the counted part are known.
LOGGED = "--disable_slat=1 --disable_clat=1 --log_unix_epoch=1 --write_lat_log=/tmp/{}"
# Without `ebb run`: the governor found, or the one that never saves.
UNMANAGED = {"none": "schedutil", "performance": "performance"}
POLICIES = ["native", "performance", "pacer", "pacer-plus", "pacman", "pacman-plus", "eadc",
            "pacer-plus+pacman-plus+eadc"]
FEW = [("idle", "pacer"), ("steady", "pacman")]
# Some drives must be capped: all four uncapped are 100 W (drive.toml).
BUDGET = "62 W"
# The start of each block that does not count, seconds.
WASHOUT_S = 10.0
# How much longer `ebb run` may take to its own end than a block.
SPARE_S = 600.0


class Bed(server.Bed):
    """The same server."""


def arguments(parser):
    """The options of this part."""
    group = parser.add_argument_group("--only live")
    group.add_argument("--blocks", type=int, metavar="PAIRS",
                       help="pairs of blocks of a cell [default: 8, short: 3]")
    group.add_argument("--block-seconds", type=float, metavar="S",
                       help="length, of which 10 s do not count [default: 40, short: 20]")
    group.add_argument("--cells", metavar="LOAD:POLICY,...",
                       help=f"loads are {', '.join(LOADS)} [default: all loads and policies]")
    group.add_argument("--reference", choices=["native", "none"], default="native",
                       help="without a policy ebb run observes, or does not run "
                       "[default: native]")
    group.add_argument("--plf", type=float, default=50, metavar="PERCENT",
                       help="tolerated loss of latency [default: 50]")
    group.add_argument("--minutes", type=float,
                       help="in a random order, begin no cell after so many")


def cells(args):
    """What is compared: loads and policies."""
    if args.cells:
        named = re.split(f",(?=(?:{'|'.join(LOADS)}):)", args.cells)
        chosen = [tuple(name.partition(":")[::2]) for name in named]
        for load, policy in chosen:
            expect(load in LOADS and policy, f"--cells {args.cells}: {load}:{policy} is no cell")
    elif args.short:
        chosen = FEW
    else:
        chosen = [(load, policy) for load in LOADS for policy in POLICIES]
    chosen = [cell for cell in chosen if cell[1] != args.reference]
    if args.minutes:
        random.Random(args.seed).shuffle(chosen)
    return chosen


def live(bed):
    """no policy takes more watts at the wall than none, or more latency than stated"""
    args, chosen = bed.args, cells(bed.args)
    args.blocks = args.blocks or (3 if args.short else paired.ENOUGH)
    args.block_seconds = args.block_seconds or (20.0 if args.short else 40.0)
    expect(args.block_seconds > WASHOUT_S, f"blocks must be longer than {WASHOUT_S:g} s")
    settings = {
        "seed": args.seed, "kernel": bed.image.name, "digest": server.digest(bed), "plf": args.plf,
        "reference": args.reference, "block_s": args.block_seconds, "washout_s": WASHOUT_S,
        "budget": BUDGET, "loads": LOADS,
    }
    folder = args.results or bed.folder / "live"
    results = Results(folder / "pairs.jsonl", settings)
    begun, faults = time.monotonic(), []
    for cell in chosen:
        if args.minutes and time.monotonic() - begun > 60 * args.minutes:
            print("# the time is over; later cells are not run", flush=True)
            break
        try:
            run(bed, cell, results)
        except Failure as failure:
            faults.append(f"{':'.join(cell)}: {failure}")
            print("# " + faults[-1].replace("\n", "\n# "), flush=True)
            # Ends it all where the guest is gone.
            bed.guest.run("true")
            continue
        told = row(results, cell, args)
        print(f"# {told.line()}", flush=True)
        faults += [f"{':'.join(cell)}: {fault}" for fault in told.faults or ()]
        write(folder, results, args, bed.image.name)
    expect(not faults, "\n".join(faults))


def row(results, cell, args):
    return paired.Row(cell, list(results.of(*cell).values()), args.plf, cell[1] not in UNMANAGED)


def write(folder, results, args, image):
    """Writes the table of all cells so far."""
    rows = [row(results, cell, args) for cell in sorted({run[:2] for run in results.told})]
    about = "\n".join(f"* {name}: {value}" for name, value in results.settings.items()
                      if name != "loads")
    (folder / f"{image}-{args.reference}-{args.seed}.md").write_text(paired.table(rows, about))


def run(bed, cell, results):
    """Runs those pairs of a cell that are missing."""
    (load, policy), args = cell, bed.args
    missing = results.left(*cell, count=args.blocks)
    if not missing:
        return
    # Every cell begins as cold as the others.
    bed.guest.run("mkdir -p /var/lib/ebb")
    budget = f'ssd_budget = "{BUDGET}"' if "pacman" in policy else ""
    bed.guest.run(f"""cat > /tmp/ebb.toml << 'END'\nplf = "{args.plf:g} %"\n{budget}\nEND""")
    bed.start_physics(every=0.2)
    # Loads programs and warms the server up.
    block(bed, load, args.reference)
    first = random.Random(f"{args.seed} {load} {policy}").randrange(2)
    for pair in missing:
        arms = [args.reference, policy]
        if (pair + first) % 2:
            arms.reverse()
        seen = {arm: block(bed, load, arm) for arm in arms}
        results.add(load, policy, pair, **{"without": seen[args.reference], "with": seen[policy]})


def block(bed, load, arm):
    """A block: what was seen in the part of it that counts."""
    length, folder = bed.args.block_seconds, "/sys/devices/system/cpu/cpufreq/policy*"
    bed.guest.run(f"""for policy in {folder}; do
            echo {UNMANAGED.get(arm, "schedutil")} > $policy/scaling_governor
        done""")
    with loaded(bed, load), managed(bed, arm) as ask:
        begun = float(bed.guest.run("date +%s.%N"))
        edges = begun + WASHOUT_S, begun + length
        time.sleep(WASHOUT_S)
        before = drawn(bed)
        time.sleep(length - WASHOUT_S)
        drives = drawn(bed) - before
        until("the block is over", lambda: bed.truth()[-1]["unix"] > edges[1], PATIENCE)
        told = ask()
    truth = bed.truth()
    spent = joules(truth, "wall_joules", edges[1]) - joules(truth, "wall_joules", edges[0])
    # The twin of the server takes its drives as constant; who serves them knows what they drew.
    constant = sum(truth[-1]["drives"]) * (edges[1] - edges[0])
    spent += (drives - constant) * truth[-1]["drive_watt"]
    left_out = joules(truth, "left_out_s", edges[1]) - joules(truth, "left_out_s", edges[0])
    count, mean = latency(bed, edges) if LOADS[load] else (0, None)
    return {"watts": spent / (edges[1] - edges[0]), "drives_w": drives / (edges[1] - edges[0]),
            "left_out_s": left_out, "slower": bed.slower,
            "latency_ms": mean, "requests": count,
            "begun": begun, **told}


def drawn(bed):
    """What the drives have drawn so far, joules (modelled, by who serves them)."""
    statuses = [target.status() for target in bed.targets]
    return sum(drive["energy_modelled_j"] for status in statuses for drive in status["drives"])


@contextlib.contextmanager
def loaded(bed, load):
    """fio on all drives, or nothing."""
    if LOADS[load] is None:
        yield
        return
    bed.guest.run("rm -f /tmp/load*")
    for drive in range(server.DRIVES):
        name = f"load{drive}"
        options = f"--rw=randrw --bs=4k {LOADS[load]} {LOGGED.format(name)}"
        start_fio(bed, name, drive, options)
    try:
        yield
    finally:
        stop_fio(bed)


@contextlib.contextmanager
def managed(bed, arm):
    """`ebb run` as an arm has it; yields what must be asked at the end of the block."""
    if arm in UNMANAGED:
        yield lambda: {"interruptions": 0, "cpu_s": 0.0}
        return
    machine, acts = Machine(bed, arm), arm != "native"
    try:
        with machine.block(acts, bed.args.block_seconds + SPARE_S):
            yield lambda: interrupted(bed, acts)
    finally:
        if acts:
            machine.restore()


def interrupted(bed, acts):
    """How often it gave up acting, and what CPU time it took; it must still run, and have acted at
    all."""
    told = bed.guest.run("""if [ -e /tmp/code ]; then
            echo "ebb run ended with code $(cat /tmp/code)"; tail -n 20 /tmp/notes; exit 1
        fi
        { cat /proc/[0-9]*/stat 2> /dev/null || true; } \\
            | awk '$2 ~ /[(](ebb|exe)[)]/ { ticks += $14 + $15 } END { print ticks / 100 }'
        grep -o '"state":"[^"]*"' /tmp/said || true""")
    states = re.findall('"state":"(.*)"', told)
    usual = "acting" if acts else "observing"
    expect(usual in states, f"it was never {usual}: {states}")
    return {"interruptions": sum(state not in ("starting", usual) for state in states),
            "cpu_s": float(told.partition("\n")[0])}


def latency(bed, edges):
    """Requests that ended between these moments, and their mean latency in ms."""
    # Each line: time of day in ms, latency in ns, and more.
    count, total = map(float, bed.guest.run(f"""awk -F, '
        $1 >= {edges[0] * 1e3:.0f} && $1 < {edges[1] * 1e3:.0f} {{ count++; total += $2 }}
        END {{ printf "%d %.0f", count, total }}' /tmp/load*_lat.1.log""").split())
    expect(count > 0, "fio was answered no request")
    return int(count), total / count / 1e6


SHORT = STEPS = [server.boot, live, server.farewell]
