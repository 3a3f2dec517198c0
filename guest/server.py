"""The guest as the server: a kernel with frequencies, idle states, energy counters, fans and
temperatures of our own, and drives with power states."""

import functools
import hashlib
import json
import subprocess
from pathlib import Path

from acting import asleep, cores, deadlines, drives, ends, fans, hidden, jobs, limits, offline
from bed import ADDRESS, HARDWARE, SERVER, WATCH, Failure, Guest, Target, expect, tools, until
from boots import boots
from budget import budget, tenants
from frozen import disk, frozen
from likeness import likeness
from measured import measured
from reactors import reactors
from replaying import replay
from results import Results
from steps import HOST, PATIENCE
from trials import LIMITED

DRIVES = 4
CPUS = range(8)
FREQUENCIES = [800000, 1200000, 1600000, 2000000, 2400000, 2800000]


class Bed:
    """The guest, and a target for each of its drives."""

    def __init__(self, args, folder, image):
        self.args, self.image, self.folder = args, image, folder / self.__module__
        self.guest = None
        self.targets = []
        # What was true so far.
        self.told = []
        # What long steps have told; another guest goes on with them.
        self.results = Results(args.results and args.results / "server.jsonl", {
            "seed": args.seed, "kernel": image.name, "digest": digest(self),
        })

    def hwmon(self, name):
        """The folder of the first chip of that name."""
        return self.guest.run(f"dirname $(grep -lx {name} /sys/class/hwmon/hwmon*/name | head -1)")

    def switch_on(self):
        """Starts the machine; its disks are as they were left."""
        self.guest = Guest(self.image, self.folder, SERVER, self.drives)

    def begin(self):
        """What a start of the machine needs: its hardware, its drives, and tasks that are bound."""
        self.guest.run(f"""{WATCH}
            mkdir -p /tmp/tools /etc/nvme
            mount -o ro /dev/vdb /tmp/tools
            echo {HOST} > /etc/nvme/hostnqn
            cut -d: -f3 /etc/nvme/hostnqn > /etc/nvme/hostid
            modprobe -a ebb_hw cpufreq_userspace cpufreq_powersave""")
        for drive in self.targets:
            self.guest.run(f"nvme connect -t tcp -a {ADDRESS} -s {drive.port} -n {drive.nqn}")
        self.await_drives()
        answers(self, "cat /sys/devices/system/cpu/cpu*/topology/physical_package_id", *"00001111")
        # Somebody's tasks and the kernel's that are bound to CPUs; others may end under grep.
        self.guest.run("""rm -f /tmp/bound /tmp/physics.pid
            for cpus in 2 5-6 4-7 0,7; do
                setsid taskset -c $cpus setpriv --reuid=nobody sh -c 'while sleep 1; do :; done' \\
                    > /dev/null 2>&1 < /dev/null &
                echo $! >> /tmp/bound
            done
            (grep -slE '^(kswapd|kcompactd)' /proc/[0-9]*/comm || true) | cut -d/ -f3 >> /tmp/bound""")

    def await_drives(self):
        """Until all drives answer."""
        disks = "ls -d /sys/block/nvme[0-9]n* | wc -l; grep -sc live /sys/class/nvme/nvme?/state | grep -c :1"
        until("all drives answer", lambda: self.guest.attempt(disks)[1].split() == [str(DRIVES)] * 2,
              PATIENCE)

    def number(self, path):
        return int(self.guest.run(f"cat {path}"))

    @functools.cached_property
    def slower(self):
        """How many times as long the same work takes on the guest's CPUs as on this machine's."""
        work = "sim --profile generic-1u --workload rand-rw --rate '50000 IOPS' --duration '4 s' " \
            "--policy pacer --seed 1"
        timed = "TIMEFORMAT='%U'; time {} {} > /tmp/work 2>&1"
        here = ["bash", "-c", f"({timed.format(self.args.ebb, work)}) 2>&1"]
        here = float(subprocess.run(here, capture_output=True, text=True, check=True).stdout)
        there = float(self.guest.run(f"({timed.format('/tmp/tools/ebb', work)}) 2>&1"))
        expect(here > 0.0, "work that takes a second takes no time here")
        slower = max(1.0, there / here)
        print(f"# work takes {slower:.1f} times as long as here; Ebb's own counts as here", flush=True)
        return slower

    def start_physics(self, profile="server.toml", every=1, changes=()):
        """Lets the twin be the server, with changes of its profile; it tells the truth every so many
        seconds, and counts Ebb's own work as this machine's CPUs would do it."""
        self.told = []
        profile = (HARDWARE / profile).read_text()
        for old, new in changes:
            expect(old in profile, f"the profile has no {old}")
            profile = profile.replace(old, new)
        self.guest.run(f"""cat > /tmp/server.toml << 'END'\n{profile}\nEND
            [ ! -e /tmp/physics.pid ] || kill $(cat /tmp/physics.pid) || true
            : > /tmp/truth
            setsid /tmp/tools/hardware /tmp/server.toml /tmp/faults {every} {self.slower} \\
            > /tmp/truth 2> /tmp/physics < /dev/null &
            echo $! > /tmp/physics.pid""")
        until("the physics run", lambda: self.truth(), PATIENCE)

    def truth(self):
        """What is true in the twin, second by second."""
        alive = "kill -0 $(cat /tmp/physics.pid) || { cat /tmp/physics; exit 1; }"
        lines = self.guest.run(f"{alive}; tail -n +{len(self.told) + 1} /tmp/truth")
        self.told += [json.loads(line) for line in lines.splitlines() if line.endswith("}")]
        return self.told

    def close(self):
        if self.guest is not None:
            self.guest.stop()
        for target in self.targets:
            if target.alive():
                target.kill()

    @property
    def setup(self):
        """What a step needs that is run again on another guest."""
        return [boot, physics]

    def renew(self):
        """Begins again with another guest."""
        self.close()
        self.guest, self.targets = None, []
        self.folder = self.folder.with_name(self.folder.name + "+")
        for step in self.setup:
            step(self)


def programs(bed):
    """What the guest runs of Ebb: the command and the physics."""
    hardware = Path(bed.args.ebb).parent / "examples" / "hardware"
    if not hardware.exists():
        raise Failure(f"{hardware}: not there; cargo build -p ebb-twin --example hardware")
    return bed.args.ebb, hardware


def digest(bed):
    """Of all that a number depends on but the guest's image."""
    files = *programs(bed), HARDWARE / "server.toml", HARDWARE / "drive.toml"
    hashes = b"".join(hashlib.sha256(Path(file).read_bytes()).digest() for file in files)
    return hashlib.sha256(hashes).hexdigest()[:16]


def serve_drive(bed, number):
    """Starts a drive of the server, by this machine."""
    nqn = f"nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-00000000010{number}"
    model = HARDWARE / "drive.toml"
    if number == LIMITED:
        text = model.read_text().replace("[drive]\n", "[drive]\npower_limit = true\n", 1)
        model = bed.folder / "limited.toml"
        model.write_text(text)
    bed.targets.append(Target(
        bed.args.ebb, bed.folder, f"drive{number}", "--scheduler", "interrupt", "--nqn", nqn,
        "--metrics", f"{ADDRESS}:0", "--namespace",
        f"modelled:64MiB,lazy,drive={model}"))
    return bed.targets[-1]


def boot(bed):
    """the server boots with two sockets and drives; its hardware is registered"""
    bed.folder.mkdir()
    bed.drives = [tools(bed.folder, *programs(bed)), disk(bed.folder)]
    bed.switch_on()
    for number in range(DRIVES):
        serve_drive(bed, number)
    bed.begin()


def answers(bed, script, *expected):
    """Runs a script that must print these lines."""
    told = [line.strip() for line in bed.guest.run(script).split("\n")]
    expect(told == list(map(str, expected)), f"{script}\nprinted {told}, not {expected}")


def frequencies(bed):
    """cpufreq: frequencies land, limits hold, a firmware's clamp shows in cpuinfo_cur_freq only"""
    listed = " ".join(map(str, FREQUENCIES))
    answers(bed, f"""cd /sys/devices/system/cpu/cpufreq/policy5
        governor=$(cat scaling_governor)
        echo userspace > scaling_governor
        cat scaling_available_frequencies
        for frequency in {listed}; do
            echo $frequency > scaling_setspeed
            grep frequency5 /dev/ebb-hw
        done
        echo 1600000 > scaling_max_freq
        grep frequency5 /dev/ebb-hw
        echo clamp1 1200000 > /dev/ebb-hw
        cat cpuinfo_cur_freq scaling_max_freq
        echo clamp1 0 > /dev/ebb-hw
        echo 2800000 > scaling_max_freq
        echo $governor > scaling_governor""",
            listed, *(f"frequency5 {frequency}" for frequency in [*FREQUENCIES, 1600000]),
            1200000, 1600000)


def idle_states(bed):
    """cpuidle: an idle CPU rests in the deepest state, and in another where that is disabled"""
    answers(bed, """cd /sys/devices/system/cpu/cpu6/cpuidle
        cat state*/name
        rests_in() {
            local before=$(cat state$1/usage)
            until [ $(cat state$1/usage) -gt $((before + 2)) ]; do sleep 0.1; done
        }
        rests_in 3
        echo 1 > state3/disable
        rests_in 2
        before=$(cat state3/usage)
        rests_in 2
        echo $(($(cat state3/usage) - before))
        echo 0 > state3/disable""", "POLL", "C1", "C1E", "C6", 0)


def powercap(bed):
    """powercap: two packages whose counters wrap, with limits that can be set"""
    answers(bed, """cd /sys/class/powercap
        cat intel-rapl:*/name
        cd intel-rapl:1
        top=$(cat max_energy_range_uj)
        echo energy1 $((top - $(cat energy_uj))) > /dev/ebb-hw
        echo $((top - $(cat energy_uj)))
        echo energy1 1000 > /dev/ebb-hw
        cat energy_uj
        found=$(cat constraint_0_power_limit_uw)
        echo 60000000 > constraint_0_power_limit_uw
        cat constraint_0_power_limit_uw
        grep limit1 /dev/ebb-hw
        echo $found > constraint_0_power_limit_uw""",
            "package-0", "package-1", 0, 999, 60000000, "limit1 60000000")


def hwmon(bed):
    """hwmon: temperatures, sensors that vanish, fans; duties only where the board lets go"""
    chip, core = bed.hwmon("ebb_board"), bed.hwmon("coretemp")
    answers(bed, f"""cd {chip}
        tell() {{ echo "$*" > /dev/ebb-hw; }}
        refuses() {{ if (echo "$2" > $1) 2> /dev/null; then echo $1 takes "$2"; fi; }}
        tell temp0 51000; cat {core}/temp1_input
        tell temp0 none; cat {core}/temp1_input 2> /dev/null || echo no answer
        tell fan2 4321; cat fan2_input
        tell auto1 77; cat pwm1
        for value in 100 -1 256 x; do refuses pwm1 $value; done
        for value in 3 -1 ""; do refuses pwm1_enable "$value"; done
        echo 1 > pwm1_enable
        for value in -1 256 x; do refuses pwm1 $value; done
        echo 100 > pwm1
        tell auto1 88; cat pwm1
        echo 2 > pwm1_enable
        for line in "fan9 1" "fan1" "auto1 256" "energy0 -1"; do refuses /dev/ebb-hw "$line"; done
        """, 51000, "no answer", 4321, 77, 100)


def probe(bed):
    """ebb probe finds all of it, and its values are the kernel's"""
    bed.guest.run("""cat > /dev/ebb-hw << 'END'
temp0 51000
temp1 62000
inlet 24000
power 211000000
fan1 1001
fan2 1002
fan3 1003
fan4 1004
auto1 51
auto2 51
auto3 51
auto4 51
END""")
    report = bed.guest.json("/tmp/tools/ebb probe --json")
    count = report["cpus"], report["cores"], report["sockets"]
    expect(count == (8, 8, 2), f"CPUs, cores, sockets: {count}")
    rows = {}
    for row in report["signals"] + report["controls"]:
        if "missing" not in row:
            rows.setdefault(row["name"], {})[row.get("of")] = row.get("value")
    fans = [f"fan{number}" for number in range(4)]
    for name, values in {
        "socket_temperature": {"socket0": 51, "socket1": 62},
        "inlet_temperature": {None: 24},
        "power": {None: 211},
        "cpu_power": {"package-0": None, "package-1": None},
        "fan_speed": dict(zip(fans, (1001, 1002, 1003, 1004))),
        "fan_duty": dict.fromkeys(fans, 0.2),
        "cores_active": {"all": 8},
        "active_cores": {"all": 8, "system.slice": 8},
        "frequency_hz": {f"policy{cpu}": 2.8e9 for cpu in CPUS},
    }.items():
        expect(rows.get(name) == values, f"{name}: {rows.get(name)}, not {values}")
    drives = [of for of in rows["drive_read_bytes"] if of.startswith("Ebb NVMe/TCP target EBB")]
    expect(len(drives) == DRIVES, f"drives by their identity: {list(rows['drive_read_bytes'])}")
    fits = {fit["policy"]: fit["lacks"] for fit in report["policies"]}
    expect(fits["pacer"] == fits["eadc"] == [], fits)


def physics(bed):
    """the twin closes the loop: work and its frequency show in watts, duties and faults in fans"""
    bed.start_physics()
    until("two seconds pass", lambda: len(bed.truth()) > 2, PATIENCE)
    idle = bed.truth()[-1]["watts"]
    bed.guest.run("""for cpu in 4 5 6 7; do
            taskset -c $cpu sh -c 'while :; do :; done' & echo $!
        done > /tmp/spinners""")
    until("work takes power", lambda: bed.truth()[-1]["watts"][1] > idle[1] + 30, PATIENCE)
    busy = bed.truth()[-1]["watts"]
    expect(busy[0] < busy[1] - 20, f"the other socket works too: {busy}")
    limit = "/sys/devices/system/cpu/cpufreq/policy[4-7]/scaling_max_freq"
    chip = bed.hwmon("ebb_board")
    bed.guest.run(f"""for file in {limit}; do echo 800000 > $file; done
        echo 1 > {chip}/pwm3_enable
        echo 255 > {chip}/pwm3""")
    until("slow cores take less", lambda: bed.truth()[-1]["watts"][1] < busy[1] - 30, PATIENCE)
    until("the fan turns faster", lambda: bed.number(f"{chip}/fan3_input") > 10000, PATIENCE)
    bed.guest.run("echo fan 2 stalled > /tmp/faults")
    until("the fan stands", lambda: bed.number(f"{chip}/fan3_input") == 0, PATIENCE)
    bed.guest.run(f"""rm /tmp/faults
        echo 2 > {chip}/pwm3_enable
        kill $(cat /tmp/spinners)
        for file in {limit}; do echo 2800000 > $file; done""")


def farewell(bed):
    """at the end the kernel has not complained"""
    complaints = bed.guest.run(r"dmesg | grep -E 'BUG|WARNING|Call Trace|I/O error' || true")
    expect(not complaints, complaints)


FIRST = [boot, frequencies, idle_states, powercap, hwmon, probe, physics, deadlines]
# What an end leaves is what was set before, at random.
LAST = [ends, frozen, farewell, boots]
SHORT = [*FIRST, *LAST]
STEPS = [*FIRST, hidden, reactors, cores, offline, asleep, drives, limits, fans, jobs, likeness, measured, replay,
         budget, tenants, *LAST]


class Ends:
    """What a campaign repeats: ends of `ebb run`."""
    Bed, SHORT = Bed, [boot, physics, ends, farewell]
    STEPS = SHORT


class Boots:
    """And losses of power."""
    Bed, SHORT = Bed, [boot, boots]
    STEPS = SHORT
