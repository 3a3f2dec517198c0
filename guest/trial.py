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
# How far a block's watts at the wall may be from true ones. Ebb and the twin's record look at
# different moments.
SENSED = 0.02


class Bed(server.Bed):
    """The same server."""


class Machine:
    """`ebb run` in the guest, block by block, as a trial runs it."""

    def __init__(self, bed):
        self.bed = bed
        # When each block began, and what was true second by second since its time 0.
        self.true = []
        self.zero = None

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
        begun, self.zero = time.time(), None
        try:
            yield self.lines()
        finally:
            self.bed.guest.run("""kill -TERM $(cat /tmp/pid) 2> /dev/null || true
                until [ -e /tmp/code ]; do sleep 0.1; done""")
            self.true.append((begun, self.bed.truth()[int(self.zero or 0):]))

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
                if self.zero is None and (event := json.loads(line))["event"] == "sample":
                    self.zero = len(self.bed.truth()) - event["time_s"]
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
    (folder / "true.json").write_text(json.dumps(machine.true))
    expect(done.end == "complete", f"it ended {done.end}: {done.why}")
    pairs = {}
    for block in done.blocks:
        seconds = next(true for begun, true in machine.true if begun >= block.started)
        counted = seconds[int(WASHOUT_S):int(BLOCK_S)]
        true = statistics.mean(second["wall"] for second in counted)
        sensed = block.seen.means["power_w"]
        print(f"# pair {block.pair}, {block.arm}: {true:.2f} W true, {sensed:.2f} W sensed")
        pairs.setdefault(block.pair, {})[block.arm] = true, sensed
        expect(abs(sensed / true - 1) < SENSED, f"{sensed} W is sensed, {true} W is true")
    print(f"# {verdict.conclusion}; {folder}/{telling.PAGE}")
    (watts,) = (each for each in verdict.differences if each.name == "watts")
    true = statistics.mean(pair["policy"][0] - pair["native"][0] for pair in pairs.values())
    told = watts.difference
    print(f"# true {true:+.2f} W, {told.value:+.2f} W ({told.low:+.2f} to {told.high:+.2f}) told")
    expect(told.low <= true <= told.high, "the interval does not contain what is true")


SHORT = STEPS = [server.boot, load, trial, server.farewell]
