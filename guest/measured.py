"""`[trial]` of `ebb run`: the saving that it measures in blocks as found, beside the watts that are true
in the twin behind the hardware."""

import statistics

from acting import Running
from bed import expect, until

POLICY = "constant(ghz=1.2)"
CONFIG = f"""policy = "{POLICY}"
ledger = "/tmp/ledger"
[trial]
share = "20%"
block = "6 s"
"""
# The most that seven blocks can take, in seconds, and what of a block does not count.
LONGEST, SETTLES = 400, 2
# How far the saving that is told may be from the true one, as a share.
APART = 0.1


def measured(bed):
    """what `ebb report` says was measured in blocks as found is what the clock saves at the twin's wall"""
    bed.start_physics()
    bed.guest.run("""rm -f /tmp/ledger*
        for cpu in 4 5 6; do
            setsid taskset -c $cpu sh -c 'while :; do :; done' > /dev/null 2>&1 < /dev/null & echo $!
        done > /tmp/spinners""")
    with Running(bed, CONFIG):
        begun = len(bed.truth())
        until("seven blocks are over", lambda: int(bed.guest.run(
            "cat /tmp/said /tmp/notes | grep -c 'trial: power' || true")) >= 7, LONGEST)
        found, held = apart([second["wall"] for second in bed.truth()[begun:]])
    report = bed.guest.json("/tmp/tools/ebb report --ledger /tmp/ledger --json")
    bed.guest.run("kill $(cat /tmp/spinners)")
    (trial,) = report["trial"]
    saved, truth = trial["saved_w"], found - held
    print(f"# {trial['blocks']} blocks, {trial['found_w']:.1f} W as found, {saved} W saved; "
          f"in the twin {found:.1f} and {held:.1f} W, {truth:.1f} W")
    expect((trial["policy"], trial["of"]) == (POLICY, "power"), f"it tried {trial}")
    expect(truth > 10 and abs(saved["mean"] / truth - 1) < APART, f"{saved} W of {truth:.1f} W")


def apart(walls):
    """Means of the watts above and below their middle, once they have been there for a while."""
    middle = (max(walls) + min(walls)) / 2
    found = [watts > middle for watts in walls]
    settled = range(SETTLES, len(walls))
    settled = [at for at in settled if len({*found[at - SETTLES:at + 1]}) == 1]
    return (statistics.mean(walls[at] for at in settled if found[at] == side) for side in (True, False))
