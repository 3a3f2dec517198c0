"""How often the interval of an `ebb-lab trial` holds what is true: many short trials of a constant
frequency, while other work comes and goes. A good minute each, with the Python of `lab/.venv`."""

import math
import random
import statistics

import server
import trial
from acting import stop_fio
from bed import Skip, expect

POLICY = "constant(ghz=1.2)"
BLOCK_S, WASHOUT_S, PAIRS = 3.0, 1.0, 6
# Work whose level stays for about as long as a block, so that noise of one block hangs together.
WORK = """my ($level, $until) = (0, 0);
while (1) {
    ($level, $until) = (0.3 + rand(0.5), time + rand(8)) if time >= $until;
    my $end = time + 0.1 * $level;
    1 while time < $end;
    sleep(0.1 * (1 - $level));
}"""


class Bed(server.Bed):
    """The same server."""


def coverage(bed):
    """intervals of 95 % hold the true difference as often as they say"""
    try:
        from ebb_lab.trial import course, judging
        from ebb_lab.trial.design import Design
    except ImportError as error:
        raise Skip(f"{error}; run it by lab/.venv/bin/python, after lab/check") from None
    bed.guest.run("echo > /tmp/ebb.toml")
    bed.guest.run(f"""cat > /tmp/work << 'END'\n{WORK}\nEND
        setsid taskset -c 6 perl -MTime::HiRes=time,sleep /tmp/work \\
            > /dev/null 2>&1 < /dev/null &""")
    machine, minutes = trial.Machine(bed, POLICY), 2 * PAIRS * BLOCK_S / 60
    told, apart = [], []
    for number in range(bed.args.trials):
        seed = random.Random(f"{bed.args.seed} {number}").randrange(2**32)
        design = Design(POLICY, minutes, BLOCK_S, WASHOUT_S, tolerate=9.0, window_s=2.0, seed=seed)
        folder = bed.folder / f"trial{number}"
        folder.mkdir()
        done = course.run(design, folder, machine, about={"host": "guest"})
        expect(done.end == "complete", f"trial {number} ended {done.end}: {done.why}")
        apart += trial.differences(trial.by_truth(bed.truth(), done, folder))
        verdict = judging.judge(done)
        (watts,) = (each for each in verdict.differences if each.name == "watts")
        told.append(watts.difference)
        print(f"# trial {number}: {told[-1].value:+.2f} W ({told[-1].low:+.2f} to "
              f"{told[-1].high:+.2f}); true so far {statistics.mean(apart):+.2f} W", flush=True)
    stop_fio(bed)
    true = statistics.mean(apart)
    held = sum(interval.low <= true <= interval.high for interval in told)
    print(f"# {held} of {len(told)} intervals hold {true:+.2f} W")
    expect(held >= least(len(told)), "that is too few for intervals of 95 %")


def least(count, share=0.95, chance=0.001):
    """The most that fewer of `count` are with at most this chance."""
    below = 0.0
    for held in range(count + 1):
        below += math.comb(count, held) * share**held * (1 - share) ** (count - held)
        if below > chance:
            return held
    return count


def load(bed):
    """a user reads and writes, and the twin stands for the hardware"""
    trial.begin(bed, 1, "--iodepth=1 --rate_iops=10")


SHORT = STEPS = [server.boot, load, coverage, server.farewell]
