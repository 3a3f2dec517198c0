"""`ebb run --apply` on the server: cores, drives and fans follow, and all is as it was at the end."""

import json
import re
import time

import trials
from bed import Skip, expect, until
from dump import DUMP, same
from steps import PATIENCE

FIO = "fio --direct=1 --ioengine=libaio --time_based --runtime=86400 --size=32m"


class Running:
    """`ebb run --apply` with a configuration, until the block ends; then all must be as found."""

    def __init__(self, bed, config):
        self.bed, self.config = bed, config

    def __enter__(self):
        self.bed.guest.run(f"""{DUMP}
            dump > /tmp/before
            mkdir -p /var/lib/ebb
            cat > /tmp/ebb.toml << 'END'\n{self.config}\nEND
            rm -f /tmp/code
            setsid sh -c '/tmp/tools/ebb run --apply --json --config /tmp/ebb.toml & echo $! > /tmp/pid
                wait $!; echo $? > /tmp/code' > /tmp/said 2> /tmp/notes < /dev/null &""")
        until("ebb acts", self.acts, PATIENCE)
        return self

    def acts(self):
        """Whether it has begun to act; it must not have ended."""
        code, notes = self.bed.guest.run("cat /tmp/code 2> /dev/null || echo -; cat /tmp/notes") \
            .partition("\n")[::2]
        expect(code == "-", f"`ebb run` ended with code {code}: {notes}")
        return any(event.get("state") == "acting" for event in self.events())

    def events(self):
        """What it has said."""
        return [json.loads(line) for line in self.bed.guest.run("cat /tmp/said").splitlines()]

    def reload(self, config):
        """Gives it a new configuration."""
        self.bed.guest.run(f"""cat > /tmp/ebb.toml << 'END'\n{config}\nEND
            kill -HUP $(cat /tmp/pid)""")

    def __exit__(self, kind, error, trace):
        if kind is not None:
            told = self.bed.guest.run("""kill -TERM $(cat /tmp/pid) || true
                until [ -e /tmp/code ]; do sleep 0.1; done
                tail -n 20 /tmp/said /tmp/notes""")
            print("# " + told.replace("\n", "\n# "))
            return
        before, after, code = self.bed.guest.run(f"""{DUMP}
            kill -TERM $(cat /tmp/pid)
            until [ -e /tmp/code ]; do sleep 0.1; done
            dump > /tmp/after
            cat /tmp/before; echo ===; cat /tmp/after; echo ===; cat /tmp/code /tmp/notes
            """).split("===\n")
        expect(code.startswith("0"), f"`ebb run` ended with code {code}")
        same(before, after)


def start_fio(bed, name, drive, options):
    """Starts fio on a drive; stopped with stop_fio."""
    bed.guest.run(f"""setsid {FIO} --name={name} --filename=/dev/nvme{drive}n1 {options} \\
            > /tmp/{name} 2>&1 < /dev/null &
        echo $! >> /tmp/fios""")


def stop_fio(bed):
    """Stops all of it."""
    bed.guest.run("""kill $(cat /tmp/fios) || true
        rm /tmp/fios
        while grep -lx fio /proc/[0-9]*/comm 2> /dev/null | grep -q .; do sleep 0.1; done""")


def feature(bed, number, drive="?"):
    """A feature of all drives or one, as nvme-cli reads it."""
    told = bed.guest.run(f"for drive in /dev/nvme{drive}; do nvme get-feature $drive -f {number}; done")
    return [int(line.rpartition("value:")[2].split(",")[0], 16) for line in told.splitlines()]


def states(bed):
    """The drives' power states."""
    return feature(bed, 2)


def written(bed, drive):
    """Bytes per second that reach a drive, over some seconds of the guest's clock."""
    count = f"""awk '{{ print $7 * 512 }}' /sys/block/nvme{drive}c{drive}n1/stat
        awk '{{ print $1 }}' /proc/uptime"""
    bytes, second = map(float, bed.guest.run(count).split())
    time.sleep(6)
    more, later = map(float, bed.guest.run(count).split())
    return (more - bytes) / (later - second)


def drives(bed):
    """PACMAN moves the power states of drives with its budget, and throughput follows"""
    start_fio(bed, "writes", 0, "--rw=write --bs=128k --iodepth=8")
    with Running(bed, 'policy = "pacman"\nssd_budget = "100 W"') as ebb:
        until("none is capped", lambda: states(bed) == [0] * 4, PATIENCE)
        fast = written(bed, 0)
        ebb.reload('policy = "pacman"\nssd_budget = "44 W"')
        # One by its power limit.
        until("all are capped", lambda: states(bed) == [2, 2, 2, 0], PATIENCE)
        slow = written(bed, 0)
    stop_fio(bed)
    print(f"# {fast / 1e6:.0f} MB/s in state 0, {slow / 1e6:.0f} MB/s in state 2 (modelled drives)")
    # (25 - 6.8) W against (11 - 6.8) W for writing; the emulated guest may reach less of the first.
    expect(slow < fast * 0.6, f"{fast} and {slow} bytes per second: the cap does not show")


def limits(bed):
    """PACMAN moves a drive's power limit between its states' caps, throughput follows, and it ends as found"""
    def limit():
        scale, value = divmod(*feature(bed, "0x23", drive), 1 << 16)
        expect(scale == 2, f"the limit is not in hundredths of a watt: scale {scale}")
        return value / 100

    drive, found = trials.LIMITED, 22
    set_limit = f"nvme set-feature /dev/nvme{drive} -f 0x23 -v"
    bed.guest.refuses(f"{set_limit} {2 << 16 | 1099} 2>&1", "0x13e", "0x413e")
    bed.guest.run(f"{set_limit} {2 << 16 | found * 100}")
    start_fio(bed, "writes", drive, "--rw=write --bs=128k --iodepth=8")
    rates = []
    with Running(bed, 'policy = "pacman"\nssd_budget = "100 W"') as ebb:
        for budget, (least, most) in (100, (found, found)), (50, (12, 14)), (44, (11, 11)):
            ebb.reload(f'policy = "pacman"\nssd_budget = "{budget} W"')
            until(f"the limit is {least} to {most} W", lambda: least <= limit() <= most, PATIENCE)
            rates.append((limit(), written(bed, drive)))
    expect(limit() == found, f"the limit found was {found} W, it is {limit()} W")
    stop_fio(bed)
    bed.guest.run(f"{set_limit} 0")
    print("# " + ", ".join(f"{rate / 1e6:.1f} MB/s within {watts:g} W" for watts, rate in rates))
    # (22 - 6.8) W, at least (12 - 6.8) W and (11 - 6.8) W for writing.
    expect(rates[2][1] < rates[0][1] * 0.6, "the limit does not show in what is written")
    expect(rates[2][1] < rates[1][1] * 0.9, "a limit between the states' caps does not show")


def cores(bed):
    """PACER parks cores under fio: no task of a group is left there, and they rest in C6"""
    start_fio(bed, "some", 0, "--rw=randrw --bs=4k --iodepth=4 --rate_iops=30")
    list = "/sys/fs/cgroup/system.slice/cpuset.cpus"
    with Running(bed, 'policy = "pacer"\nplf = "50%"'):
        kept = until("cores are parked", lambda: bed.guest.run(
            f"grep -sxv 0-7 {list} || true"), PATIENCE)
        # The kernel's threads are in the root group and stay; all others must have gone.
        told = bed.guest.run(f"""for task in /proc/[0-9]*; do
                if read -rd "" name 2> /dev/null < $task/cmdline; then cut -d' ' -f2,39 $task/stat 2> /dev/null; fi
            done | grep ' 7$' || true
            grep frequency0 /dev/ebb-hw
            cat /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
            cd /sys/devices/system/cpu/cpu7/cpuidle
            cat state*/time | xargs; sleep 2; cat state*/time | xargs""")
        print(f"# CPUs {kept} are used; " + told.replace("\n", ", "))
        *busy, frequency, limit, begun, ended = told.splitlines()
        rest = [int(b) - int(a) for a, b in zip(begun.split(), ended.split())]
        expect(not busy, f"tasks on the parked CPU 7: {busy}")
        expect(int(frequency.split()[1]) <= int(limit), f"{frequency}, but {limit} is the ceiling")
        expect(rest[3] > sum(rest) / 2, f"the parked CPU was in its states for {rest} us")
    stop_fio(bed)


HALF = 'policy = "constant(cores=0.5)"'
# CPUs that somebody else takes offline and brings back, until /tmp/enough is there.
HOTPLUG = """rm -f /tmp/enough
    setsid bash -c 'RANDOM={seed}
        while [ ! -e /tmp/enough ]; do
            cpus=(1 3 4 5 6 7); cpu=/sys/devices/system/cpu/cpu${{cpus[RANDOM % 6]}}/online
            echo 0 > $cpu; sleep 0.$((RANDOM % 9)); echo 1 > $cpu; sleep 0.$((RANDOM % 9))
        done; touch /tmp/stopped' > /dev/null 2>&1 < /dev/null &
"""


def deadlines(bed):
    """with schedutil's deadline threads and CPUs that come and go, cores are parked and the kernel lives"""
    bed.guest.run(f"""rm -f /tmp/stopped
        for policy in /sys/devices/system/cpu/cpufreq/policy*; do
            cat $policy/scaling_governor; echo schedutil > $policy/scaling_governor
        done > /tmp/governors
        cat > /tmp/ebb.toml << 'END'\n{HALF}\nEND
        mkdir -p /var/lib/ebb
        {DUMP}\ndump > /tmp/before""")
    expect(len(sugov(bed)) == 8, f"schedutil has no threads of its own here: {sugov(bed)}")
    bed.guest.run(HOTPLUG.format(seed=bed.args.seed))
    cycles = bed.args.cycles
    for cycle in bed.results.left("cycle", count=cycles):
        signal = "KILL" if cycle % 3 == 2 else "TERM"
        told = bed.guest.run(f"""/tmp/tools/ebb run --apply --config /tmp/ebb.toml > /tmp/said 2>&1 &
            supervisor=$!
            for try in $(seq 400); do
                # Which CPUs are left depends on those that are away.
                grep -svx 0-7 /sys/fs/cgroup/system.slice/cpuset.cpus | grep . && break || sleep 0.1
            done
            kill -{signal} $supervisor $(cat /proc/$supervisor/task/$supervisor/children) || true
            wait $supervisor || true
            while grep -lxE 'ebb|exe' /proc/[0-9]*/comm > /dev/null 2>&1; do sleep 0.1; done
            for try in $(seq 20); do /tmp/tools/ebb restore >> /tmp/said 2>&1 && break || sleep 0.5; done""")
        bed.results.add("cycle", cycle, parked=bool(told))
        if cycle % 20 == 19:
            print(f"# {cycle + 1} of {cycles} cycles", flush=True)
    before, after = bed.guest.run(f"""touch /tmp/enough
        until [ -e /tmp/stopped ]; do sleep 0.1; done
        /tmp/tools/ebb restore >> /tmp/said 2>&1
        {DUMP}\ndump > /tmp/after
        cat /tmp/before; echo ===; cat /tmp/after""").split("===\n")
    parked = sum(record["parked"] for record in bed.results.of("cycle").values())
    print(f"# cores were parked in {parked} of {cycles} cycles")
    wrong = {name: cpus for name, cpus in sugov(bed).items() if name != f"sugov:{cpus}"}
    expect(not wrong, f"bound elsewhere: {wrong}")
    expect(parked > cycles / 2, "too often nothing was parked: there was nothing to prove")
    same(before, after, bed.guest.run("cat /tmp/said"))
    bed.guest.run("""paste <(ls -d /sys/devices/system/cpu/cpufreq/policy*) /tmp/governors |
        while read policy governor; do echo $governor > $policy/scaling_governor; done""")


def hidden(bed):
    """a task that is bound to a CPU that is away keeps it, whatever comes and goes while cores are parked"""
    def told(script):
        return bed.guest.run(script).split()

    if told("uname -r")[0].startswith("6.1."):
        raise Skip("Linux before 6.2 forgets it by itself")
    cpu = "/sys/devices/system/cpu/cpu"
    bed.guest.run(f"""{DUMP}\ndump > /tmp/before
        echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
        for group in /sys/fs/cgroup/*/cpuset.cpus; do echo 0-7 > $group; done
        setsid taskset -c 3,5 sleep 9999 > /dev/null 2>&1 < /dev/null & echo $! > /tmp/hidden""")
    moves = f"""echo 1 > {cpu}5/online; sleep 3
        echo 0 > {cpu}3/online; sleep 3; echo 1 > {cpu}3/online; sleep 3"""
    binding = "sed -n 's/^Cpus_allowed_list:\\t//p' /proc/$(cat /tmp/hidden)/status"
    alone = told(f"echo 0 > {cpu}5/online; sleep 1; {binding}; {moves}; {binding}")
    bed.guest.run(f"taskset -pc 3,5 $(cat /tmp/hidden); echo 0 > {cpu}5/online; sleep 1")
    bed.guest.run(f"""cat > /tmp/ebb.toml << 'END'\n{HALF}\nEND
        mkdir -p /var/lib/ebb
        setsid /tmp/tools/ebb run --apply --config /tmp/ebb.toml > /tmp/said 2>&1 < /dev/null & echo $! > /tmp/pid""")
    list = "/sys/fs/cgroup/system.slice/cpuset.cpus"
    parked = until("cores are parked", lambda: told(f"grep -sxv 0-7 {list} || true"), PATIENCE)
    beside = told(f"{binding}; {moves}; {binding}; cat {list}")
    bed.guest.run("kill $(cat /tmp/pid); while [ -e /proc/$(cat /tmp/pid) ]; do sleep 0.1; done")
    after = told(binding)
    print(f"# bound to 3,5, seen as {alone[0]}: {alone[1]} without ebb, {beside} beside it ({parked}), then {after}")
    expect(alone[1] == "3,5", "this kernel forgets it by itself")
    expect(after == ["3,5"], "a CPU of it is lost")
    before, after = bed.guest.run(f"""kill $(cat /tmp/hidden)
        echo -cpuset > /sys/fs/cgroup/cgroup.subtree_control
        {DUMP}\ndump > /tmp/after
        cat /tmp/before; echo ===; cat /tmp/after""").split("===\n")
    same(before, after)


def sugov(bed):
    """Schedutil's threads, and what they are bound to."""
    told = bed.guest.run("grep -shE '^(Name|Cpus_allowed_list)' /proc/[0-9]*/status || true")
    names = re.findall(r"Name:\s*(sugov:\d+)\nCpus_allowed_list:\s*(\S+)", told)
    return dict(names)


def offline(bed):
    """cores that are not needed go offline where they may: not the last CPU of a socket or of a bound task; all come back"""
    start_fio(bed, "few", 0, "--rw=randrw --bs=4k --iodepth=4 --rate_iops=30")
    folder = "/sys/devices/system/cpu"
    with Running(bed, 'policy = "constant(cores=0.25)"\n[machine]\npark_by = "offline"') as ebb:
        # CPU 0 cannot go; tasks are bound to 2 and to 5-6 (server.Bed.begin).
        until("all that may are offline", lambda: bed.guest.run(
            f"cat {folder}/online").strip() == "0,2,5", PATIENCE)
        # Everything is read back meanwhile.
        time.sleep(12)
        answers = bed.guest.run(f"cat {folder}/online; cat {folder}/cpu[025]/topology/physical_package_id")
        expect(answers.split() == ["0,2,5", "0", "0", "1"], f"online, and their sockets: {answers}")
        told = [event for event in ebb.events() if event["event"] == "notice"
                or event.get("state", "").startswith("degraded")]
        expect(not told, f"it said {told}")
    stop_fio(bed)


def asleep(bed):
    """the machine sleeps (suspend to memory) while cores are parked: all is as it was set, and nothing is complained of"""
    start_fio(bed, "few", 0, "--rw=randrw --bs=4k --iodepth=4 --rate_iops=30")
    with Running(bed, 'policy = "constant(cores=0.5, ghz=1.2)"') as ebb:
        limits = "cat /sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"
        until("all clocks are limited", lambda: {*bed.guest.run(limits).split()} == {"1200000"},
              PATIENCE)
        before = bed.guest.run(f"{DUMP}\ndump")
        bed.guest.run("rtcwake -m mem -s 5")
        slept = bed.guest.run("dmesg | grep -c 'PM: suspend exit' || true").strip()
        expect(slept == "1", f"the machine slept {slept} times")
        bed.await_drives()
        # Everything is read back meanwhile.
        time.sleep(12)
        same(before, bed.guest.run(f"{DUMP}\ndump"))
        told = [event for event in ebb.events() if event["event"] == "notice"
                or event.get("state", "").startswith("degraded")]
        expect(not told, f"it said {told}")
    stop_fio(bed)


def fans(bed):
    """EADC has the fans; one that stops is survived: the others go faster, nothing throttles"""
    chip = bed.hwmon("ebb_board")
    bed.guest.run("""for cpu in 4 5 6; do
            taskset -c $cpu sh -c 'while :; do :; done' & echo $!
        done > /tmp/spinners""")

    def duties():
        return list(map(int, bed.guest.run(f"cat {chip}/pwm[1-4]").split()))

    with Running(bed, 'policy = "eadc"'):
        until("Ebb has the fans", lambda: bed.guest.run(
            f"cat {chip}/pwm[1-4]_enable").split() == ["1"] * 4, PATIENCE)
        before = duties()
        begun = len(bed.truth())
        bed.guest.run("echo fan 1 stalled > /tmp/faults")
        until("the others go faster", lambda: min(
            duty for fan, duty in enumerate(duties()) if fan != 1) > before[0] + 10, PATIENCE)
        after = duties()
        seen = bed.truth()[begun:]
    hottest = max(max(second["dies"]) for second in seen)
    print(f"# duties {before} -> {after}, hottest die {hottest:.1f} °C (the twin's)")
    expect(not any(any(second["throttled"]) for second in seen), "a socket throttled")
    bed.guest.run("rm /tmp/faults; kill $(cat /tmp/spinners)")


def jobs(bed):
    """two jobs on one socket: a policy moves one to the other by its list of CPUs, and gives it back"""
    groups = ["batch.slice/scrub", "batch.slice/index"]
    bed.guest.run(f"""cd /sys/fs/cgroup
        echo +cpuset > cgroup.subtree_control; mkdir batch.slice
        echo +cpuset > batch.slice/cgroup.subtree_control
        cpu=1
        for group in {" ".join(groups)}; do
            mkdir $group; echo 0-7 > $group/cpuset.cpus
            setsid sh -c "echo \\$\\$ > $group/cgroup.procs; taskset -pc $cpu \\$\\$
                taskset -pc 0-7 \\$\\$; while :; do :; done" > /dev/null 2>&1 < /dev/null &
            cpu=2
        done
        until [ "$(cat batch.slice/*/cgroup.procs | wc -l)" = 2 ]; do sleep 0.1; done""")
    named = "".join(f'[[job]]\ncgroup = "{group}"\nclass = "noncritical"\n' for group in groups)
    with Running(bed, f'policy = "dlb"\n{named}'):
        # The 39th field of a task's stat is the CPU that it is on.
        where = " ".join(f"$(cat /sys/fs/cgroup/{group}/cgroup.procs)" for group in groups)
        until("each job has a socket of its own", lambda: sorted(int(cpu) // 4 for cpu in bed.guest.run(
            f"for task in {where}; do cut -d' ' -f39 /proc/$task/stat; done").split()) == [0, 1], PATIENCE)
    bed.guest.run(f"""cd /sys/fs/cgroup
        kill -KILL {where}
        until rmdir {" ".join(groups)} batch.slice 2> /dev/null; do sleep 0.1; done
        echo -cpuset > cgroup.subtree_control""")


def ends(bed):
    """however `ebb run` ends, at random moments, every control is back"""
    def prepare(bed):
        bed.start_physics(changes=trials.CHANGES)
        bed.guest.run(trials.BEGIN)
        start_fio(bed, "load", 0, "--rw=randrw --bs=4k --iodepth=4 --rate_iops=10")

    changed = trials.run(bed, bed.args.seed, bed.args.trials, bed.results, prepare)
    stop_fio(bed)
    bed.guest.run(trials.END)
    bed.start_physics()
    print(f"# {bed.args.trials} trials of seed {bed.args.seed}; in {changed} there was something to set back")
    expect(changed > 0, "nothing was changed in any trial: there was nothing to prove")
