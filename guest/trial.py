"""`ebb-lab trial` on the server: what its meters and intervals say, beside the watts that are true
in the twin behind the hardware. It takes a quarter of an hour, and the Python of `lab/.venv`."""

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

    def __init__(self, bed):
        self.bed = bed

    def restore(self):
        self.bed.guest.run("/tmp/tools/ebb restore")

    @contextlib.contextmanager
    def block(self, acts, seconds):
        policy = f"--policy {POLICY} --apply" if acts else "--policy native"
        self.bed.guest.run(f"""rm -f /tmp/code /tmp/pid
            setsid sh -c '/tmp/tools/ebb run {policy} --json --samples --config /tmp/ebb.toml \\
                    --duration "{seconds:g} s" & echo $! > /tmp/pid
                wait $!; echo $? > /tmp/code' > /tmp/said 2> /tmp/notes < /dev/null &
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
            time.sleep(1)


def load(bed):
    """users read and write, and the twin stands for the hardware"""
    bed.start_physics()
    for drive in range(server.DRIVES):
        start_fio(bed, f"load{drive}", drive, "--rw=randrw --bs=4k --iodepth=4 --rate_iops=30")
    until("five seconds pass", lambda: len(bed.truth()) > 5, PATIENCE)


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
    machine, folder = Machine(bed), bed.folder / "trial"
    folder.mkdir()
    done = course.run(design, folder, machine, about={"host": "guest"},
                      say=lambda line: print(f"# {line}", flush=True))
    stop_fio(bed)
    verdict = judging.judge(done)
    telling.write(verdict, folder)
    expect(done.end == "complete", f"it ended {done.end}: {done.why}")
    truth, walls = bed.truth(), {}
    for record in map(json.loads, (folder / "runs.jsonl").read_text().splitlines()):
        if "result" not in record:
            continue
        said = folder / "samples" / (record["key"].replace("/", "-") + ".jsonl")
        watts, wall = true(truth, map(json.loads, said.read_text().splitlines()))
        pair, arm = record["result"]["pair"], record["result"]["arm"]
        sensed = record["result"]["seen"]["means"]["cpu_power_w"]
        print(f"# pair {pair}, {arm}: {watts:.2f} W true, {sensed:.2f} W sensed")
        walls.setdefault(pair, {})[arm] = wall
        expect(abs(sensed / watts - 1) < SENSED, f"{sensed} W is sensed, {watts} W is true")
    print(f"# {verdict.conclusion}; {folder}/{telling.PAGE}")
    (watts,) = (each for each in verdict.differences if each.name == "watts")
    apart = statistics.mean(pair["policy"] - pair["native"] for pair in walls.values())
    told = watts.difference
    print(f"# at the wall {apart:+.2f} W, {told.value:+.2f} W ({told.low:+.2f} to {told.high:+.2f}) told")
    expect(told.low <= apart <= told.high, "the interval does not contain what is true")


def true(truth, events):
    """Watts of both sockets and at the wall in the part of a block that counts. What the wall's
    meter said tells which second was which."""
    samples = (event for event in events if event["event"] == "sample")
    read = {round(it["values"]["power_w"], 6): it["time_s"] for it in samples
            if "power_w" in it["values"]}
    begun = statistics.median(second["seconds"] - read[round(second["wall"], 6)]
                              for second in truth if round(second["wall"], 6) in read)
    counted = [second for second in truth if WASHOUT_S <= second["seconds"] - begun <= BLOCK_S]
    joules, seconds = (counted[-1][of] - counted[0][of] for of in ("joules", "seconds"))
    return joules / seconds, statistics.mean(second["wall"] for second in counted)


SHORT = STEPS = [server.boot, load, trial, server.farewell]
