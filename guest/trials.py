"""`ebb run` on the server, ended in every way at random moments: every control must be back."""

import json
import random
import re

from bed import ADDRESS, Failure, Silence, expect
from dump import DUMP, same

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
# The disk of the drive of that number, which a new connection may have given another name: nvme1n2
# while somebody has the old one open.
DISK = """disk() {
            local at=$(grep -lE "00000000010$1\$" /sys/block/nvme[0-9]n[0-9]/device/subsysnqn)
            cat ${at%/device/subsysnqn}/dev
        }
        controller() { dirname $(grep -lE "00000000010$1\$" /sys/class/nvme/nvme*/subsysnqn); }"""
STEPS = [800000, 1200000, 1600000, 2000000, 2400000, 2800000]
CPUFREQ, GROUPS = "/sys/devices/system/cpu/cpufreq", "/sys/fs/cgroup"
BOARD = "/sys/devices/platform/ebb-board/hwmon/hwmon*"
PACKAGE = "/sys/devices/virtual/powercap/intel-rapl/intel-rapl:"
LAG_S = 2.0
# A late meter, hot cores, for an emulated guest cannot keep many busy, and frugal fans, for all draw
# their most in the least that a budget may be.
CHANGES = [("[cpu] ", f"[board]\nmeter_lag = '{LAG_S:g} s'\n[cpu] "),
           ('core_dynamic = "16 W"', 'core_dynamic = "32 W"'),
           ("[fans]\n", "[fans]\nwatts_per_rpm3 = 1.2e-12\n")]
# Policies that between them set every kind of control that the server has.
POLICIES = {
    "parks": """policy = "pacer+pacman+eadc+apst"
ssd_budget = "62 W"
[machine]
raise_limits = true
""",
    "limits": """policy = "tide"
server_budget = "190 W"
profile = "/tmp/server.toml"
[machine]
throttle = ["work.slice"]
best_effort = ["spare.slice"]
""",
}
HOLDS = 'package_power = "90 W"', 'cpu_latency = "100 us"', 'drive_power = "14 W"'
HOLD = "\n".join(["[hold]", *HOLDS])
# What the second holds back: groups with work of the CPUs and of a disk.
BEGIN = f"""mkdir -p /var/lib/ebb {GROUPS}/user.slice {GROUPS}/work.slice {GROUPS}/spare.slice
    echo '+cpu +io' > {GROUPS}/cgroup.subtree_control"""
WORK = f"""for cpu in 1 2 5; do
        setsid taskset -c $cpu sh -c 'echo $$ > {GROUPS}/work.slice/cgroup.procs; while :; do :; done' \\
            > /dev/null 2>&1 < /dev/null &
    done
    setsid sh -c 'echo $$ > {GROUPS}/spare.slice/cgroup.procs
        exec fio --name=spare --filename=$(ls /dev/nvme1n[0-9]) --direct=1 --ioengine=libaio --rw=read --bs=128k \\
            --rate_iops=20 --time_based --runtime=86400 --size=32m' > /dev/null 2>&1 < /dev/null &
    disown -a"""
REST = f"kill -KILL $(cat {GROUPS}/work.slice/cgroup.procs {GROUPS}/spare.slice/cgroup.procs) || true"
END = f"""for group in {GROUPS}/work.slice {GROUPS}/spare.slice; do
        until [ ! -e $group ]; do
            kill -KILL $(cat $group/cgroup.procs) 2> /dev/null || true
            rmdir $group 2> /dev/null || sleep 0.1
        done
    done
    echo '-cpu -io -cpuset' > {GROUPS}/cgroup.subtree_control"""


class Trial:
    """One run of `ebb run --apply` and its end."""

    def __init__(self, bed, seed, number):
        self.random = random.Random(f"{seed} {number}")
        self.bed, self.name = bed, f"trial {number} of seed {seed}"
        self.end, self.first = list(ENDS)[number % len(ENDS)], number == 0
        # The drive that leaves, and the settings that somebody else writes, with their values.
        self.leaves, self.rival = None, {}
        self.config = self.choose_config()
        self.goes, self.comes = self.choose_event()

    def choose_config(self):
        """What Ebb is to do: a policy, what is held under it, and what becomes of rivals."""
        self.limits = self.random.random() < 0.2
        policy = list(POLICIES)[self.limits]
        held = [line for line in HOLDS if self.random.random() < 0.5]
        self.contest = self.random.choice(["reassert", "yield", "alarm"])
        self.policy = f"{policy}, holds {held}, contest {self.contest}"
        text = POLICIES[policy]
        if self.random.random() < 0.5:
            text = text.replace("raise_limits = true", "raise_limits = false")
        return "\n".join([f'contest = "{self.contest}"', text, "[hold]", *held])

    def found(self):
        """What somebody may have set before Ebb comes."""
        choose, lines = self.random.choice, []
        lines += [f"disk{drive}=$(disk {drive})" for drive in range(4)]
        for cpu in range(8):
            low, high = sorted(self.random.choices(STEPS, k=2))
            governor = choose(["schedutil", "performance", "powersave", "userspace"])
            lines.append(f"cd {CPUFREQ}/policy{cpu}\n"
                         f"echo {governor} > scaling_governor\n"
                         "echo 800000 > scaling_min_freq\n"
                         f"echo {high} > scaling_max_freq; echo {low} > scaling_min_freq\n"
                         f"echo {choose(['0', '50', 'n/a'])} > ../../cpu{cpu}/power/pm_qos_resume_latency_us")
        lines.append(f"cd {BOARD}")
        for fan in range(1, 5):
            duty, mode = self.random.randrange(100, 256), choose([1, 2])
            lines.append(f"echo 1 > pwm{fan}_enable; echo {duty} > pwm{fan}\n"
                         f"echo {mode} > pwm{fan}_enable")
        for package in range(2):
            lines.append(f"echo {choose([75, 105, 150])}000000 > {PACKAGE}{package}/constraint_0_power_limit_uw")
        # One that leaves comes back in its first state, without Ebb as well.
        states = [0 if drive == self.leaves else self.random.randrange(3) for drive in range(4)]
        # Or with the kernel's own tolerance of wake-ups.
        lines += [f"echo {100000 if drive == self.leaves else choose(['any', 0, 500, 100000])}"
                  f" > $(controller {drive})/power/pm_qos_latency_tolerance_us" for drive in range(4)]
        # Nor does its limit stay.
        limit = 0 if self.leaves == LIMITED else choose([0, 2 << 16 | self.random.randrange(1100, 2500)])
        set_states = " ".join(f"{drive} 2 {state}" for drive, state in enumerate(states))
        lines.append(f"features {set_states} {LIMITED} 0x23 {limit}")
        lines.append(f"cd {GROUPS}")
        for group in "work.slice", "spare.slice":
            lines.append(f"echo {choose(['max 100000', '400000 100000'])} > {group}/cpu.max")
            for drive in range(4):
                rates = choose(["rbps=max wbps=max", "rbps=9000000 wbps=max", "rbps=max wbps=8000000"])
                # What was set for a drive goes with it.
                lines.append(f"echo $disk{drive} {rates if drive != self.leaves else 'rbps=max wbps=max'} "
                             f"riops=max wiops=max > {group}/io.max")
        # The controller is off, or on with lists: a group that has none cannot have none again.
        # There a CPU that goes makes Linux before 6.2 forget what tasks are bound to, without Ebb.
        lines.append("echo -cpuset > cgroup.subtree_control")
        lists = choose([True, False])
        if lists:
            lines.append("echo +cpuset > cgroup.subtree_control")
            for group in "system.slice", "user.slice", "work.slice", "spare.slice":
                low, high = self.random.randrange(4), self.random.randrange(4, 8)
                lines.append(f"echo {low}-{high} > {group}/cpuset.cpus")
        # Of a task that may run on the CPU that goes and on no other Linux forgets it, without Ebb.
        for task in range(1, 5):
            cpus = range(8) if lists else self.random.sample(range(8), self.random.randrange(2, 5))
            lines.append(f"taskset -pc {','.join(map(str, cpus))} $(sed -n {task}p /tmp/bound) > /dev/null")
        return "\n".join(lines)

    def choose_event(self):
        """What happens to the machine while Ebb acts, and what brings back what went: before the
        end, or once Ebb has ended."""
        cpu, drive = self.random.randrange(1, 8), self.random.randrange(4)
        target = self.bed.targets[drive]
        online = f"/sys/devices/system/cpu/cpu{cpu}/online"
        # Longer than Ebb waits for a drive or a chip.
        pause = self.random.choice([0.5, 0.5, 0.5, 11])
        what, goes, comes = self.random.choice([
            ("nothing", "", ""),
            (f"CPU {cpu}", f"echo 0 > {online}", f"echo 1 > {online}"),
            (f"drive {drive}", f"nvme disconnect -n {target.nqn} > /dev/null",
             f"nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn} > /dev/null"),
            # The board comes back under the meter's number, the meter under the board's.
            ("the board's chip", "printf 'chip2 0\\nchip3 0\\n' > /dev/ebb-hw",
             "printf 'chip3 1\\nchip2 1\\n' > /dev/ebb-hw"),
            ("somebody writes", None, ""),
        ])
        if goes is None:
            what, goes = self.choose_rival(what)
        elif "nvme" in goes:
            self.leaves = drive
        late = bool(comes) and self.random.random() < 0.3
        back = "" if not comes else ", back when Ebb has ended" if late else f", away for {pause} s"
        self.happens = f"{self.policy}; {what}{back}"
        if goes:
            goes += f"\nsleep {pause}\n"
        return (goes, comes) if late else (goes + comes, "")

    def choose_rival(self, what):
        """A writer that has ended before Ebb does."""
        choose = self.random.choice
        fan, cpu, package = self.random.randrange(1, 5), self.random.randrange(8), choose([0, 1])
        drive, duty = self.random.randrange(3), self.random.randrange(100, 256)
        limit = f"{CPUFREQ}/policy{cpu}/scaling_max_freq"
        # With what tells the place among those that Ebb has saved; it saves those of all drives or none.
        self.rival, self.place = choose([
            ({f"{BOARD}/pwm{fan}_enable": 1, f"{BOARD}/pwm{fan}": duty}, {"file": f"pwm{fan}"}),
            ({limit: STEPS[-1]}, {"path": limit[1:]}),
            ({f"{PACKAGE}{package}/constraint_0_power_limit_uw": 61000000}, {"package": f"package-{package}"}),
            ({f"drive {drive}": 1}, {"kind": "power-state"}),
            ({f"{GROUPS}/work.slice/cpu.max": "250000 100000"}, {"path": f"{GROUPS[1:]}/work.slice/cpu.max"}),
        ])
        writes = [f"features {drive} 2 {value}" if name.startswith("drive")
                  else f"echo {value} > {name}" for name, value in self.rival.items()]
        return f"{what} {self.rival}", "\n".join(["cp /var/lib/ebb/originals.json /tmp/held", *writes])

    def theirs(self, held):
        """Whether a name may say at the end what the rival wrote, by what Ebb had saved before. It had
        not set the place, or gives up what others change (and may end before it notices)."""
        if self.rival and self.contest != "yield":
            places = [one["place"] for one in json.loads(held)["originals"] if one["touched"]]
            if any(self.place.items() <= place.items() for place in places):
                return lambda name, values: False
        # What a governor keeps of its own is within the limit.
        return lambda name, values: any(
            values == [str(value)]
            and (re.search(rf"10{place[-1]} 2$", name) if place.startswith("drive") else name == place)
            or name == place.replace("scaling_max_freq", "scaling_setspeed") != place
            for place, value in self.rival.items())

    def run(self):
        """Whether there was anything to set back."""
        # From the start, from the first write on, or from the first cycle on.
        events = ["true", "[ -e /var/lib/ebb/originals.json ]", "grep -qE ' (acting|degraded.*)$' /tmp/ebb-run"]
        if self.limits:
            events.append(f"! cat {GROUPS}/*.slice/io.max | cmp -s /tmp/rates")
        event = events[-1] if self.first or self.rival else self.random.choice(events)
        wait = f"within \"{event}\" 'kill -0 $supervisor' true"
        moment, pause = self.random.uniform(0, 4), self.random.uniform(0, 1.5)
        told = self.bed.guest.run(f"""{DUMP}
            pause={pause:.3f}
            cat > /tmp/ebb.toml << 'END'\n{self.config}\nEND
            {DISK}
            within() {{
                SECONDS=0
                until eval "$1"; do
                    if ! eval "$2" || [ $SECONDS -gt 100 ]; then
                        echo "still not: $1"; eval "$3"; cat /tmp/ebb-run; exit 1
                    fi
                    sleep 0.05
                done
            }}
            running() {{ grep -lxE 'ebb|exe' /proc/[0-9]*/comm 2> /dev/null || true; }}
            gone() {{ within '[ -z "$(running)" ]' true 'cat $(running | sed s/comm/stack/)'; }}
            start() {{
                /tmp/tools/ebb run --config /tmp/ebb.toml --apply >> /tmp/ebb-run 2>&1 &
                supervisor=$!
            }}
            find_worker() {{
                worker=$(cat /proc/$supervisor/task/$supervisor/children 2> /dev/null || true)
            }}
            {self.found()}
            cat {GROUPS}/*.slice/io.max > /tmp/rates
            dump > /tmp/before
            {WORK if self.limits else ""}
            : > /tmp/ebb-run
            : > /tmp/held
            start
            {wait}
            sleep {moment:.3f}
            {self.goes}
            find_worker
            {ENDS[self.end]}
            gone
            {self.comes}
            # An overloaded machine may have lost one of its drives for a while.
            within '[ $(cat /sys/class/nvme/nvme?/state | grep -cx live) = 4 ]' true "dmesg | tail"
            echo ===; /tmp/tools/ebb restore
            {REST if self.limits else ""}
            dump > /tmp/after
            echo ===; cat /tmp/before
            echo ===; cat /tmp/after
            echo ===; cat /tmp/held
            echo ===; ls /var/lib/ebb; cat /tmp/ebb-run""")
        _, restored, *shots, left = told.split("===\n")
        before, after, held = shots
        what = f"{self.name}, {self.happens}, {self.end}, {event}, {moment:.3f} s, then {pause:.3f} s"
        same(before, after, f"{what}:\n{restored}\n{left}", theirs=self.theirs(held))
        expect("originals" not in left, f"{what}: there is more to set back:\n{restored}")
        # Whoever sets back says what.
        return "' -> '" in restored + left


def run(bed, seed, count, results, prepare):
    """Runs so many trials; in how many there was anything to set back. `prepare` makes a machine
    ready for them."""
    prepare(bed)
    for number in results.left("trial", count=count):
        for first in True, False:
            try:
                results.add("trial", number, changed=Trial(bed, seed, number).run())
                break
            except Failure as failure:
                told = f"trial {number} of seed {seed}: {failure}"
                # The emulator may get stuck as a whole; what Ebb does to a kernel it does twice.
                if not (first and isinstance(failure, Silence)):
                    raise Failure(told) from None
                print(f"# once more, on another guest: {told[:500]}".replace("\n", "\n# "), flush=True)
                bed.renew()
                prepare(bed)
        if number % 20 == 19:
            print(f"# {number + 1} of {count} trials", flush=True)
    return sum(record["changed"] for record in results.of("trial").values())
