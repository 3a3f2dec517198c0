"""`ebb run` on the server, ended in every way at random moments: every control must be back."""

import random
import re

from bed import Failure, expect

# All that may be written and read again of CPUs, packages, chips, control groups and drives, and
# what tasks are bound to. A duty is the board's own while the board steers.
SNAPSHOT = """snapshot() {
    find /sys/devices/system/cpu /sys/devices/virtual/powercap /sys/devices/platform/ebb-board \\
        /sys/fs/cgroup -type f -perm /200 ! -name uevent ! -name 'cgroup.procs' \\
        ! -name 'cgroup.threads' ! -name '*.pressure' -print0 | sort -z | xargs -0 grep -s '' || true
    find /sys/fs/cgroup -type d | sort
    for task in $(cat /tmp/bound 2> /dev/null); do
        echo task $task: $(grep -s Cpus_allowed_list /proc/$task/status)
    done
    for drive in /dev/nvme?; do echo $drive: $(nvme get-feature $drive -f 2); done
}
"""
# How `ebb run` ends: who is killed by what, and who sets everything back. $supervisor, $worker.
ENDS = {
    "both are killed": "kill -KILL $supervisor $worker",
    "it is told to end": "kill -TERM $supervisor",
    "the worker is killed": "kill -KILL ${worker:-$supervisor}",
    "the supervisor is killed": "kill -KILL $supervisor",
    "the worker crashes": "kill -ABRT ${worker:-$supervisor}",
    "the worker is told to end": "kill -TERM ${worker:-$supervisor}",
    "killed, and so is the first ebb restore": """kill -KILL $supervisor $worker
        gone
        /tmp/tools/ebb restore & sleep $pause; kill -KILL $! || true""",
    "killed, started again, and killed": """kill -KILL $supervisor $worker
        gone
        start; sleep $pause; find_worker
        kill -KILL $supervisor $worker || true""",
    "the supervisor is killed, and another started at once": """kill -KILL $supervisor
        start; sleep $pause; find_worker
        kill -KILL $supervisor $worker || true""", # It refuses to start beside the other's worker.
}
CONFIG = """policy = "pacer+pacman+eadc"
ssd_budget = "62 W"
"""


class Trial:
    """One run of `ebb run --apply` and its end."""

    def __init__(self, bed, seed, number):
        self.random = random.Random(f"{seed} {number}")
        self.bed, self.name = bed, f"trial {number} of seed {seed}"
        self.end, self.first = list(ENDS)[number % len(ENDS)], number == 0

    def found(self):
        """What somebody may have set before Ebb comes."""
        choose, lines = self.random.choice, []
        steps = [800000, 1200000, 1600000, 2000000, 2400000, 2800000]
        for cpu in range(8):
            low, high = sorted(self.random.choices(steps, k=2))
            governor = choose(["schedutil", "performance", "powersave", "userspace"])
            lines.append(f"cd /sys/devices/system/cpu/cpufreq/policy{cpu}\n"
                         f"echo {governor} > scaling_governor\n"
                         "echo 800000 > scaling_min_freq\n"
                         f"echo {high} > scaling_max_freq; echo {low} > scaling_min_freq")
        lines.append(f"cd {self.bed.hwmon('ebb_board')}")
        for fan in range(1, 5):
            duty, mode = self.random.randrange(100, 256), choose([1, 2])
            lines.append(f"echo 1 > pwm{fan}_enable; echo {duty} > pwm{fan}\n"
                         f"echo {mode} > pwm{fan}_enable")
        for drive in range(4):
            lines.append(f"nvme set-feature /dev/nvme{drive} -f 2 -v {self.random.randrange(3)}")
        for task in range(1, 5):
            cpus = ",".join(map(str, self.random.sample(range(8), self.random.randrange(1, 5))))
            lines.append(f"taskset -pc {cpus} $(sed -n {task}p /tmp/bound) > /dev/null")
        sign = choose("+-")
        lines.append(f"cd /\nrmdir /sys/fs/cgroup/ebb-parked 2> /dev/null || true\n"
                     f"echo {sign}cpuset > /sys/fs/cgroup/cgroup.subtree_control")
        return "\n".join(lines)

    def run(self):
        """Whether anything was set when it was killed, where nobody had yet set it back."""
        # From the start, from the first write on, or from the first cycle on.
        events = ["true", "[ -e /var/lib/ebb/originals.json ]", "grep -q ' acting$' /tmp/ebb-run"]
        event = events[-1] if self.first else self.random.choice(events)
        wait = f"until {event}; do alive; sleep 0.01; done"
        moment, pause = self.random.uniform(0, 4), self.random.uniform(0, 1.5)
        told = self.bed.guest.run(f"""{SNAPSHOT}
            pause={pause:.3f}
            alive() {{ kill -0 $supervisor; }}
            running() {{ grep -lxE 'ebb|exe' /proc/[0-9]*/comm 2> /dev/null || true; }}
            gone() {{
                for try in $(seq 600); do [ "$(running)" ] || return 0; sleep 0.1; done
                echo "still there:"; head -n 3 $(running | sed s/comm/status/); cat /tmp/ebb-run
                exit 1
            }}
            start() {{
                /tmp/tools/ebb run --config /tmp/ebb.toml --apply >> /tmp/ebb-run 2>&1 &
                supervisor=$!
            }}
            find_worker() {{
                worker=$(cat /proc/$supervisor/task/$supervisor/children 2> /dev/null || true)
            }}
            {self.found()}
            snapshot > /tmp/before
            : > /tmp/ebb-run
            start
            {wait}
            sleep {moment:.3f}
            find_worker
            {ENDS[self.end]}
            gone
            snapshot > /tmp/between
            echo ===; /tmp/tools/ebb restore
            snapshot > /tmp/after
            echo ===; cat /tmp/before
            echo ===; cat /tmp/between
            echo ===; cat /tmp/after
            echo ===; ls /var/lib/ebb; cat /tmp/ebb-run""")
        _, restored, *shots, left = told.split("===\n")
        before, between, after = shots
        what = f"{self.name}, {self.end}, {wait}, {moment:.3f} s, then {pause:.3f} s"
        same(before, after, f"{what}:\n{restored}\n{left}")
        expect("originals" not in left, f"{what}: there is more to set back:\n{restored}")
        return settings(before) != settings(between)


def settings(shot):
    """What each file of a snapshot says."""
    all = {}
    for line in shot.splitlines():
        name, _, value = line.partition(":")
        all.setdefault(name if value else line, []).append(value)
    for name in list(all):
        # The board moves a duty that is its own.
        if re.search(r"/pwm\d$", name) and all.get(f"{name}_enable") == ["2"]:
            del all[name]
    return all


def same(before, after, otherwise=""):
    """Fails unless both snapshots say the same, byte for byte."""
    before, after = settings(before), settings(after)
    lines = [f"{what}: {before.get(what)} -> {after.get(what)}"
             for what in sorted(before.keys() | after.keys())
             if before.get(what) != after.get(what)]
    expect(not lines, "\n".join([*lines, otherwise]))


def run(bed, seed, count):
    """Runs so many trials; how many had anything set when `ebb run` was killed."""
    changed = 0
    for number in range(count):
        try:
            changed += Trial(bed, seed, number).run()
        except Failure as failure:
            raise Failure(f"trial {number} of seed {seed}: {failure}") from None
        if number % 20 == 19:
            print(f"# {number + 1} of {count} trials", flush=True)
    return changed
