"""`ebb-lab trial` on the server: what its meters and intervals say, beside the watts that are true
in the twin behind the hardware. It takes a quarter of an hour, and the Python of `lab/.venv`."""

import bisect
import contextlib
import json
import statistics
import time

import server
from acting import start_fio, stop_fio
from bed import Skip, expect, until
from steps import PATIENCE

POLICY = "pacer"
CONFIG = 'plf = "50 %"'
BLOCK_S, WASHOUT_S, PAIRS = 60.0, 30.0, 6
# How far a block's watts of both sockets, by their counters of energy, may be from the true ones.
SENSED = 0.02


class Bed(server.Bed):
    """The same server."""


class Machine:
    """`ebb run` in the guest, block by block, as a trial runs it."""

    def __init__(self, bed, policy):
        self.bed, self.policy = bed, policy

    def restore(self):
        self.bed.guest.run("/tmp/tools/ebb restore")

    @contextlib.contextmanager
    def block(self, acts, seconds):
        policy = f"--policy '{self.policy}' --apply" if acts else "--policy native"
        self.bed.guest.run(f"""rm -f /tmp/code /tmp/pid
            setsid sh > /tmp/said 2> /tmp/notes << END &
                /tmp/tools/ebb run {policy} --json --samples --config /tmp/ebb.toml \\
                    --duration "{seconds:g} s" < /dev/null & echo \\$! > /tmp/pid
                wait \\$!; echo \\$? > /tmp/code
END
            until [ -s /tmp/pid ]; do sleep 0.1; done""")
        try:
            yield self.lines()
        finally:
            self.bed.guest.run("""kill -TERM $(cat /tmp/pid) 2> /dev/null || true
                until [ -e /tmp/code ]; do sleep 0.1; done""")

    def lines(self):
        """What it says, while it says it."""
        told = 0
        while True:
            ended, _, said = self.bed.guest.run(f"""[ -e /tmp/code ] && echo ended || echo runs
                tail -n +{told + 1} /tmp/said""").partition("\n")
            lines = said.splitlines()
            # The last may not be whole.
            for line in lines if ended == "ended" else lines[:-1]:
                told += 1
                yield line
            if ended == "ended":
                return
            time.sleep(0.5)


def load(bed):
    """users read and write, and the twin stands for the hardware"""
    begin(bed, server.DRIVES, "--iodepth=4 --rate_iops=30")


def begin(bed, drives, options):
    """Starts the physics, and fio on so many drives."""
    bed.start_physics(every=0.2)
    for drive in range(drives):
        start_fio(bed, f"load{drive}", drive, f"--rw=randrw --bs=4k {options}")
    until("five seconds pass", lambda: bed.truth()[-1]["seconds"] > 5, PATIENCE)


def trial(bed):
    """ebb-lab trial: what is sensed is true, and the page is written"""
    try:
        from ebb_lab.trial import course, judging, telling
        from ebb_lab.trial.design import Design
    except ImportError as error:
        raise Skip(f"{error}; run it by lab/.venv/bin/python, after lab/check") from None
    bed.guest.run(f"echo '{CONFIG}' > /tmp/ebb.toml")
    minutes = 2 * PAIRS * BLOCK_S / 60
    design = Design(POLICY, minutes, BLOCK_S, WASHOUT_S, tolerate=2.0, seed=bed.args.seed)
    machine, folder = Machine(bed, POLICY), bed.folder / "trial"
    folder.mkdir()
    done = course.run(design, folder, machine, about={"host": "guest"},
                      say=lambda line: print(f"# {line}", flush=True))
    stop_fio(bed)
    verdict = judging.judge(done)
    telling.write(verdict, folder)
    expect(done.end == "complete", f"it ended {done.end}: {done.why}")
    blocks = list(by_truth(bed.truth(), done, folder))
    for block in blocks:
        pair, arm, sensed, watts = (block[of] for of in ("pair", "arm", "sensed", "sockets"))
        print(f"# pair {pair}, {arm}: {watts:.2f} W true, {sensed:.2f} W sensed")
        expect(abs(sensed / watts - 1) < SENSED, f"{sensed} W is sensed, {watts} W is true")
    print(f"# {verdict.conclusion}; {folder}/{telling.PAGE}")
    (watts,) = (each for each in verdict.differences if each.name == "watts")
    apart, told = statistics.mean(differences(blocks)), watts.difference
    print(f"# at the wall {apart:+.2f} W, {told.value:+.2f} W ({told.low:+.2f} to {told.high:+.2f}) told")
    expect(told.low <= apart <= told.high, "the interval does not contain what is true")


def by_truth(truth, done, folder):
    """Each block that counts: watts of both sockets as sensed, and in truth, and at the wall."""
    for record in map(json.loads, (folder / "runs.jsonl").read_text().splitlines()):
        if "result" not in record:
            continue
        said = folder / "samples" / (record["key"].replace("/", "-") + ".jsonl")
        events = map(json.loads, said.read_text().splitlines())
        begun = statistics.median(
            it["unix_s"] - it["values"]["time_s"] for it in events if it["event"] == "sample")
        edges = begun + done.design.washout_s, begun + done.design.block_s
        sockets, wall = (
            (joules(truth, of, edges[1]) - joules(truth, of, edges[0])) / done.design.counted_s
            for of in ("joules", "wall_joules"))
        seen = record["result"]
        yield {"pair": seen["pair"], "arm": seen["arm"], "sockets": sockets, "wall": wall,
               "sensed": seen["seen"]["means"]["cpu_power_w"]}


def joules(truth, of, unix):
    """A sum at a moment, as if it grew evenly between what is known of it."""
    after = bisect.bisect_left(truth, unix, key=lambda told: told["unix"])
    a, b = truth[after - 1], truth[after]
    share = (unix - a["unix"]) / (b["unix"] - a["unix"])
    return a[of] + share * (b[of] - a[of])


def differences(blocks):
    """At the wall, policy from native, of each pair."""
    wall = {(block["pair"], block["arm"]): block["wall"] for block in blocks}
    return [wall[pair, "policy"] - wall[pair, "native"] for pair, arm in wall if arm == "native"]


SHORT = STEPS = [server.boot, load, trial, server.farewell]
