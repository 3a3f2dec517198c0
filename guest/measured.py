"""`[trial]` of `ebb run`: the saving that it measures in blocks as found, beside the watts that are true
in the twin behind the hardware."""

import time

from acting import Running
from bed import expect, until

POLICY = "constant(ghz=1.2)"
CONFIG = f"""policy = "{POLICY}"
ledger = "/tmp/ledger"
"""
TRIAL = CONFIG + """[trial]
share = "20%"
block = "6 s"
"""
# Seconds that show the watts of a setting, and the most that seven blocks can take.
SHOWN, LONGEST = 15, 400
# How far the saving that is told may be from the true one, as a share.
APART = 0.1


def measured(bed):
    """what `ebb report` says was measured in blocks as found is what the clock saves at the twin's wall"""
    bed.start_physics()
    bed.guest.run("""rm -f /tmp/ledger*
        for cpu in 4 5 6; do
            setsid taskset -c $cpu sh -c 'while :; do :; done' > /dev/null 2>&1 < /dev/null & echo $!
        done > /tmp/spinners""")
    found = wall(bed)
    with Running(bed, CONFIG):
        held = wall(bed)
    with Running(bed, TRIAL):
        until("seven blocks are over", lambda: int(bed.guest.run(
            "cat /tmp/said /tmp/notes | grep -c 'trial: power' || true")) >= 7, LONGEST)
    report = bed.guest.json("/tmp/tools/ebb report --ledger /tmp/ledger --json")
    bed.guest.run("kill $(cat /tmp/spinners)")
    (trial,) = report["trial"]
    saved, truth = trial["saved_w"], found - held
    print(f"# {trial['blocks']} blocks: {saved} W told, {truth:.1f} W true ({found:.1f} and {held:.1f} W)")
    expect((trial["policy"], trial["of"]) == (POLICY, "power"), f"it tried {trial}")
    expect(truth > 10 and abs(saved["mean"] / truth - 1) < APART, f"{saved} W of {truth:.1f} W")


def wall(bed):
    """The true watts at the wall, once what was set shows."""
    time.sleep(5)
    begun = len(bed.truth())
    time.sleep(SHOWN)
    seconds = [second["wall"] for second in bed.truth()[begun:]]
    return sum(seconds) / len(seconds)
