"""`tide` keeps one budget of watts for the whole server, with a meter that is late, by cores, clocks,
and the CPU time and rates of control groups that the operator names, one for which nobody waits."""

from acting import Running, start_fio, stop_fio
from bed import expect, until
from steps import PATIENCE

LAG_S = 2.0
# A late meter, hot cores, for an emulated guest cannot keep many busy, and frugal fans, for all draw
# their most in the least that a budget may be.
CHANGES = [("[cpu] ", f"[board]\nmeter_lag = '{LAG_S:g} s'\n[cpu] "),
           ('core_dynamic = "16 W"', 'core_dynamic = "32 W"'),
           ("[fans]\n", "[fans]\nwatts_per_rpm3 = 1.2e-12\n")]
# Watts, and how long each holds in seconds.
FIRST, STEPS, HOLD_S = 240, (215, 195, 235, 205), 20.0
CONFIG = f"""policy = "tide"
server_budget = "{FIRST} W"
profile = "/tmp/server.toml"
control = "/run/ebb-test.sock"
[machine]
throttle = ["work.slice"]
best_effort = ["spare.slice"]"""
SAFE = "guard:over-server-budget", "guard:no-meter"
GROUP, SPARE = "/sys/fs/cgroup/work.slice", "/sys/fs/cgroup/spare.slice"


def budget(bed):
    """tide keeps steps of a budget with a meter 2 s late, holds named groups back, and all is as it was"""
    bed.start_physics(every=0.2, changes=CHANGES)
    before = bed.guest.run("cat /sys/fs/cgroup/cgroup.subtree_control").split()
    bed.guest.run(f"""mkdir {GROUP} {SPARE}
        echo '+cpu +io' > /sys/fs/cgroup/cgroup.subtree_control
        for cpu in 1 2 5; do
            setsid taskset -c $cpu sh -c 'echo $$ > {GROUP}/cgroup.procs; while :; do :; done' \\
                > /dev/null 2>&1 < /dev/null &
        done""")
    start_fio(bed, "reads", 0, "--rw=read --bs=128k --iodepth=4")
    bed.guest.run(f"for task in $(cat /tmp/fios); do echo $task > {GROUP}/cgroup.procs; done")
    start_fio(bed, "spare", 1, "--rw=read --bs=128k --iodepth=4")
    bed.guest.run(f"""for task in $(cat /tmp/fios); do
        grep -qx $task {GROUP}/cgroup.procs || echo $task > {SPARE}/cgroup.procs; done""")
    with Running(bed, CONFIG) as ebb:
        until("it tracks", lambda: "tide:track" in bed.guest.run("cat /tmp/said"), PATIENCE)
        rows = [hold(bed, FIRST, None)]
        for watts in STEPS:
            order = f"/tmp/tools/ebb ctl --socket /run/ebb-test.sock budget set --server '{watts} W'"
            rows.append(hold(bed, watts, order))
            limits = bed.guest.run(f"cat {GROUP}/cpu.max; head -1 {GROUP}/io.max").splitlines()
            spare = bed.guest.run(f"cat {SPARE}/io.max").splitlines()
            print(f"#   {limits}, spare {spare}", flush=True)
            expect("rbps=max" not in limits[-1], "no rate is limited")
            expect(spare and not any("bps=max" in line for line in spare), "the spare group is free")
        told = [event for event in ebb.events() if event["event"] == "notice"]
        # The load was there before, over the budget: who sheds it first does not matter.
        reasons = [event.get("reason") for event in ebb.events()]
        safe = [reason for reason in reasons[reasons.index("tide:track"):] if reason in SAFE]
    stop_fio(bed)
    print(f"# it said: {told[:4]}")
    bed.guest.run(f"""kill -KILL $(cat {GROUP}/cgroup.procs {SPARE}/cgroup.procs)
        until [ ! -e {GROUP} ] && [ ! -e {SPARE} ]; do rmdir {GROUP} {SPARE} 2> /dev/null; sleep 0.1; done
        for name in cpu io; do
            case ' {" ".join(before)} ' in *" $name "*) ;;
                *) echo -$name > /sys/fs/cgroup/cgroup.subtree_control ;;
            esac
        done""")
    expect(not safe, f"the guard had to step in: {safe[:2]}")
    for watts, over, mean in rows:
        expect(over <= LAG_S + 1.5, f"over 1.02 of {watts} W for {over:.1f} s")
        expect(mean >= 0.8 * watts, f"{mean:.0f} W of {watts} W are used")


def hold(bed, watts, order):
    """Lets a budget hold for a while: it, how long it was exceeded at a stretch, and the mean of the
    second half."""
    begun = bed.truth()[-1]["seconds"]
    if order:
        bed.guest.run(order)
    until("it has held", lambda: bed.truth()[-1]["seconds"] > begun + HOLD_S, PATIENCE)
    seen = [(one["seconds"], one["wall"]) for one in bed.truth() if one["seconds"] > begun]
    over = longest = 0.0
    for (before, _), (now, wall) in zip(seen, seen[1:]):
        over = over + now - before if wall > 1.02 * watts else 0.0
        longest = max(longest, over)
    settled = [wall for now, wall in seen if now > begun + HOLD_S / 2]
    mean, highest = sum(settled) / len(settled), max(settled)
    print(f"# {watts} W: over 1.02 of it for {longest:.1f} s, then {mean:.0f} W, at most {highest:.0f}",
          flush=True)
    return watts, longest, mean
