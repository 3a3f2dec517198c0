"""`ebb run` on the server, ended in every way at random moments: every control must be back."""

import random

from bed import ADDRESS, Failure, expect
from dump import DUMP, same, settings

# How `ebb run` ends: who is killed by what, and who sets everything back. $supervisor, $worker.
ENDS = {
    "both are killed": "kill -KILL $supervisor $worker || true",
    "it is told to end": "kill -TERM $supervisor",
    "the worker is killed": "kill -KILL ${worker:-$supervisor}",
    "the supervisor is killed": "kill -KILL $supervisor",
    "the worker crashes": "kill -ABRT ${worker:-$supervisor}",
    "the worker is told to end": "kill -TERM ${worker:-$supervisor}",
    "killed, and so is the first ebb restore": """kill -KILL $supervisor $worker || true
        gone
        /tmp/tools/ebb restore & sleep $pause; kill -KILL $! || true""",
    "killed, started again, and killed": """kill -KILL $supervisor $worker || true
        gone
        start; sleep $pause; find_worker
        kill -KILL $supervisor $worker || true""",
    "the supervisor is killed, and another started at once": """kill -KILL $supervisor
        start; sleep $pause; find_worker
        kill -KILL $supervisor $worker || true""", # It refuses to start beside the other's worker.
}
# The drive that takes a power limit.
LIMITED = 3
# The controller of the drive of that number, which a new connection may have given another name.
DRIVE = """drive() {
            local at=$(grep -lE "00000000010$1\$" /sys/class/nvme/nvme*/subsysnqn)
            echo /dev/$(basename $(dirname $at))
        }"""
CONFIG = """policy = "pacer+pacman+eadc"
ssd_budget = "82 W"
"""


class Trial:
    """One run of `ebb run --apply` and its end."""

    def __init__(self, bed, seed, number):
        self.random = random.Random(f"{seed} {number}")
        self.bed, self.name = bed, f"trial {number} of seed {seed}"
        self.end, self.first = list(ENDS)[number % len(ENDS)], number == 0
        self.leaves = None
        self.event = self.choose_event()

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
            # One that leaves comes back in its first state, without Ebb as well.
            state = 0 if drive == self.leaves else self.random.randrange(3)
            lines.append(f"nvme set-feature $(drive {drive}) -f 2 -v {state}")
        # Nor does its limit stay.
        limit = 0 if self.leaves == LIMITED else choose([0, 2 << 16 | self.random.randrange(1100, 2500)])
        lines.append(f"nvme set-feature $(drive {LIMITED}) -f 0x23 -v {limit}")
        # The controller is off, or on with lists: a group that has none cannot have none again.
        # There a CPU that goes makes Linux before 6.2 forget what tasks are bound to, without Ebb.
        lines.append("cd /sys/fs/cgroup\necho -cpuset > cgroup.subtree_control")
        lists = choose([True, False])
        if lists:
            lines.append("echo +cpuset > cgroup.subtree_control")
            for group in "system.slice", "user.slice":
                low, high = self.random.randrange(4), self.random.randrange(4, 8)
                lines.append(f"echo {low}-{high} > {group}/cpuset.cpus")
        # Of a task that may run on the CPU that goes and on no other Linux forgets it, without Ebb.
        for task in range(1, 5):
            cpus = range(8) if lists else self.random.sample(range(8), self.random.randrange(2, 5))
            lines.append(f"taskset -pc {','.join(map(str, cpus))} $(sed -n {task}p /tmp/bound) > /dev/null")
        return "\n".join(lines)

    def choose_event(self):
        """What happens to the machine while Ebb acts; it is over before the end, or soon after."""
        cpu, drive = self.random.randrange(1, 8), self.random.randrange(4)
        target = self.bed.targets[drive]
        online = f"/sys/devices/system/cpu/cpu{cpu}/online"
        self.happens, script = self.random.choice([
            ("nothing happens", ""),
            (f"CPU {cpu} goes and comes back", f"echo 0 > {online}; sleep 0.5; echo 1 > {online}"),
            (f"CPU {cpu} is away for long", f"echo 0 > {online}; sleep 11; echo 1 > {online}"),
            (f"drive {drive} leaves and comes back",
             f"nvme disconnect -n {target.nqn}; sleep 0.5\n"
             f"nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn}"),
        ])
        self.leaves = drive if "connect" in script else None
        return script

    def run(self):
        """Whether anything was set when it was killed, where nobody had yet set it back."""
        # From the start, from the first write on, or from the first cycle on.
        events = ["true", "[ -e /var/lib/ebb/originals.json ]", "grep -qE ' (acting|degraded.*)$' /tmp/ebb-run"]
        event = events[-1] if self.first else self.random.choice(events)
        wait = f"within \"{event}\""
        moment, pause = self.random.uniform(0, 4), self.random.uniform(0, 1.5)
        told = self.bed.guest.run(f"""{DUMP}
            pause={pause:.3f}
            {DRIVE}
            within() {{
                for try in $(seq 3000); do if eval "$1"; then return; fi; alive; sleep 0.01; done
                echo "not in time: $1"; cat /tmp/ebb-run; exit 1
            }}
            alive() {{ kill -0 $supervisor || {{ cat /tmp/ebb-run; exit 1; }}; }}
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
            dump > /tmp/before
            : > /tmp/ebb-run
            start
            {wait}
            sleep {moment:.3f}
            {self.event}
            find_worker
            {ENDS[self.end]}
            gone
            dump > /tmp/between
            echo ===; /tmp/tools/ebb restore
            dump > /tmp/after
            echo ===; cat /tmp/before
            echo ===; cat /tmp/between
            echo ===; cat /tmp/after
            echo ===; ls /var/lib/ebb; cat /tmp/ebb-run""")
        _, restored, *shots, left = told.split("===\n")
        before, between, after = shots
        what = f"{self.name}, {self.happens}, {self.end}, {wait}, {moment:.3f} s, then {pause:.3f} s"
        same(before, after, f"{what}:\n{restored}\n{left}")
        expect("originals" not in left, f"{what}: there is more to set back:\n{restored}")
        return settings(before) != settings(between)


def run(bed, seed, count, results):
    """Runs so many trials; how many had anything set when `ebb run` was killed."""
    for number in results.left("trial", count=count):
        try:
            results.add("trial", number, changed=Trial(bed, seed, number).run())
        except Failure as failure:
            raise Failure(f"trial {number} of seed {seed}: {failure}") from None
        if number % 20 == 19:
            print(f"# {number + 1} of {count} trials", flush=True)
    return sum(record["changed"] for record in results.of("trial").values())
