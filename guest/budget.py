"""`tide` keeps one budget of watts for the whole server, with a meter that is late, by cores, clocks,
the CPU time and rates of control groups that the operator names, and by what nobody waits for: a
group, or a host of `ebb serve`."""

from acting import Running, start_fio, stop_fio
from bed import expect, until
from frozen import PLACE, loopback
from steps import PATIENCE
from trials import CHANGES, LAG_S

# Watts, and how long each holds in seconds.
FIRST, STEPS, HOLD_S = 215, (205, 190, 210, 195), 20.0
CONFIG = f"""policy = "tide"
server_budget = "{FIRST} W"
profile = "/tmp/server.toml"
control = "/run/ebb-test.sock"
[machine]
throttle = ["work.slice"]
best_effort = ["spare.slice"]"""
USER, BACKUP = "nqn.2026-01.org.example:user", "nqn.2026-01.org.example:backup"
TENANTS = f"""serve = "{PLACE}:9420"
serve_control = "/run/ebb-serve-test.sock"
""" + CONFIG.replace("spare.slice", BACKUP)
SAFE = "guard:over-server-budget", "guard:no-meter"
GROUP, SPARE = "/sys/fs/cgroup/work.slice", "/sys/fs/cgroup/spare.slice"


def budget(bed):
    """tide keeps steps of a budget with a meter 2 s late, holds named groups back, and all is as it was"""
    bed.start_physics(every=0.2, changes=CHANGES)
    before = busy(bed, GROUP, SPARE)
    start_fio(bed, "reads", 0, "--rw=read --bs=128k --iodepth=4")
    bed.guest.run(f"for task in $(cat /tmp/fios); do echo $task > {GROUP}/cgroup.procs; done")
    start_fio(bed, "spare", 1, "--rw=read --bs=128k --iodepth=4")
    bed.guest.run(f"""for task in $(cat /tmp/fios); do
        grep -qx $task {GROUP}/cgroup.procs || echo $task > {SPARE}/cgroup.procs; done""")
    with Running(bed, CONFIG) as ebb:
        rows = [kept(bed, FIRST)]
        for watts in STEPS:
            rows.append(kept(bed, watts))
            limits = bed.guest.run(f"cat {GROUP}/cpu.max; head -1 {GROUP}/io.max").splitlines()
            spare = bed.guest.run(f"cat {SPARE}/io.max").splitlines()
            print(f"#   {limits}, spare {spare}", flush=True)
            expect("rbps=max" not in limits[-1], "no rate is limited")
            expect(spare and not any("bps=max" in line for line in spare), "the spare group is free")
        safe = stepped_in(ebb)
    stop_fio(bed)
    gone(bed, before, GROUP, SPARE)
    judge(safe, rows)


def tenants(bed):
    """of the hosts of ebb serve tide slows the one that nobody waits for; it is free again when it ends"""
    bed.start_physics(every=0.2, changes=CHANGES)
    before = busy(bed, GROUP)
    loopback(bed)
    bed.guest.run(f"""setsid /tmp/tools/ebb serve --cores 3 --scheduler interrupt --listen {PLACE}:4420 \\
            --metrics {PLACE}:9420 --control /run/ebb-serve-test.sock --max-connections 16 --buffers 64 \\
            --namespace file:/dev/nvme0n1 --namespace file:/dev/nvme1n1 > /tmp/serve 2>&1 < /dev/null &
        echo $! > /tmp/serve.pid; echo $! > {GROUP}/cgroup.procs""")
    until("it serves", lambda: "metrics on" in bed.guest.run("cat /tmp/serve"), PATIENCE)
    loads = {USER: "--namespace 1 --rw randread --rate 50", BACKUP: "--namespace 2 --rw read --block-size 128KiB"}
    for host, load in loads.items():
        bed.guest.run(f"""setsid /tmp/tools/ebb load --connect {PLACE}:4420 --host-nqn {host} {load} --quiet \\
                --duration 1h > /dev/null 2>&1 < /dev/null & echo $! >> /tmp/loads""")
    with Running(bed, TENANTS) as ebb:
        rows = []
        for watts in (FIRST, STEPS[-1]):
            was = hosts(bed)
            rows.append(kept(bed, watts))
            now = hosts(bed)
            commands, moved = (now[host][of] - was[host][of] for host, of in
                               ((USER, "commands"), (BACKUP, "bytes")))
            lent = {host: one.get("lent_bytes_per_second") for host, one in now.items()}
            print(f"#   {commands} of users, {moved / 2**20:.0f} MiB of the backup, lent {lent}", flush=True)
            expect(lent[BACKUP] and not lent[USER], lent)
            # An emulated guest is late now and then.
            expect(commands >= 0.5 * 50 * HOLD_S, f"{commands} of users were served")
        safe = stepped_in(ebb)
    until("nobody is limited", lambda: not any(
        "lent_bytes_per_second" in one for one in hosts(bed).values()), PATIENCE)
    bed.guest.run("kill $(cat /tmp/loads); kill $(cat /tmp/serve.pid); rm /tmp/loads")
    until("it ends", lambda: "I/O commands in" in bed.guest.run("cat /tmp/serve"), PATIENCE)
    gone(bed, before, GROUP)
    judge(safe, rows)


def hosts(bed):
    """What each host of `ebb serve` did, and may do."""
    told = bed.guest.json("/tmp/tools/ebb ctl --json --socket /run/ebb-serve-test.sock host list")
    return {host["nqn"]: host for host in told["hosts"]}


def busy(bed, *groups):
    """Makes groups, the first of which keeps three cores busy; the controllers that were on before."""
    before = bed.guest.run("cat /sys/fs/cgroup/cgroup.subtree_control").split()
    bed.guest.run(f"""mkdir {" ".join(groups)}
        echo '+cpu +io' > /sys/fs/cgroup/cgroup.subtree_control
        for cpu in 1 2 5; do
            setsid taskset -c $cpu sh -c 'echo $$ > {groups[0]}/cgroup.procs; while :; do :; done' \\
                > /dev/null 2>&1 < /dev/null &
        done""")
    return before


def gone(bed, before, *groups):
    """Ends what is in the groups, and these."""
    bed.guest.run(f"""for group in {" ".join(groups)}; do
            until [ ! -e $group ]; do
                kill -KILL $(cat $group/cgroup.procs) 2> /dev/null || true
                rmdir $group 2> /dev/null || sleep 0.1
            done
        done
        for name in cpu io; do
            case ' {" ".join(before)} ' in *" $name "*) ;;
                *) echo -$name > /sys/fs/cgroup/cgroup.subtree_control ;;
            esac
        done""")


def stepped_in(ebb):
    """Why the guard stepped in, once the policy had understood the meter: the load was there before."""
    told = [event for event in ebb.events() if event["event"] == "notice"]
    print(f"# it said: {told[:4]}")
    reasons = [event.get("reason") for event in ebb.events()]
    return [reason for reason in reasons[reasons.index("tide:track"):] if reason in SAFE]


def judge(safe, rows):
    """Whether each budget was kept, and used."""
    expect(not safe, f"the guard had to step in: {safe[:2]}")
    for watts, over, mean in rows:
        expect(over <= LAG_S + 1.5, f"over 1.02 of {watts} W for {over:.1f} s")
        expect(mean >= 0.8 * watts, f"{mean:.0f} W of {watts} W are used")


def kept(bed, watts):
    """Lets a budget hold for a while: it, how long it was exceeded at a stretch, and the mean of the
    second half."""
    until("it tracks", lambda: "tide:track" in bed.guest.run("cat /tmp/said"), PATIENCE)
    begun = bed.truth()[-1]["seconds"]
    if watts != FIRST:
        bed.guest.run(f"/tmp/tools/ebb ctl --socket /run/ebb-test.sock budget set --server '{watts} W'")
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
