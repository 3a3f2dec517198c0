"""What a guest is set to: every file that can be read below the trees that Ebb may touch, what every
task is bound to, and every drive's power state and limit. Two dumps must be equal byte for byte."""

import re

from bed import expect

# What moves by itself, by name: measured values, counters, times. All else must be as it was.
VOLATILE = [
    # Frequencies in force, and what was counted of frequencies and idle states.
    "scaling_cur_freq", "cpuinfo_cur_freq", "cpuinfo_avg_freq", "time_in_state", "total_trans",
    "trans_table", "time", "usage", "above", "below", "rejected", "s2idle",
    # Runtime power management counts its times, wake-ups theirs.
    "runtime_active_time", "runtime_suspended_time", "wakeup_*",
    # Sensors and energy counters.
    "temp*_input", "fan*_input", "power*_average", "energy_uj",
    # What only acts when it is written, or tells of events.
    "uevent",
    # What drivers do when a CPU comes or goes, numbered in the order in which they started.
    "states",
]
# Of control groups: what is set, not what is counted.
GROUPS = ["cpuset.*", "cpu.weight*", "cpu.max*", "cpu.idle", "io.weight", "io.max", "cgroup.type",
          "cgroup.subtree_control", "cgroup.controllers"]
# include/linux/sched.h
PF_WQ_WORKER = 0x20
TREES = ["/sys/devices/system/cpu", "/sys/devices/virtual/powercap", "/sys/devices/platform"]


def _names(names, sign=""):
    return " ".join(f"{sign} -name '{name}'" for name in names)


# Defines dump, which prints all of it, but of keyboards, whose numbers are others after a start.
DUMP = f"""dump() {{
    find {" ".join(TREES)} -name input -prune -o -type f -perm /444 {_names(VOLATILE, "!")} -print0 \\
        | sort -z | xargs -0 grep -s '' || true
    find /sys/block/*/device/power -maxdepth 1 ! -path '/sys/block/nvme*' -type f -perm /444 \
        {_names(VOLATILE, "!")} -print0 2> /dev/null | sort -z | xargs -0 -r grep -s '' || true
    find /sys/fs/cgroup -type d | sort
    find /sys/fs/cgroup -type f '(' {_names(GROUPS, "-o").removeprefix("-o")} ')' -print0 \\
        | sort -z | xargs -0 grep -s '' || true
    grep -sHE '^(Name|Cpus_allowed_list)' /proc/[0-9]*/task/[0-9]*/status || true
    sed -n 's/^\\([0-9]*\\) (.*) . \\([-0-9]* \\)\\{{5\\}}\\([0-9]*\\) .*/flags \\1: \\3/p' \\
        /proc/[0-9]*/stat 2> /dev/null || true
    for drive in /sys/class/nvme/nvme*; do
        [ -e $drive ] || continue
        # By what it serves: whoever has the old controller open when a drive comes back, Ebb or
        # another, makes Linux give the new one another name.
        name="drive $(tr : _ < $drive/subsysnqn)"
        find $drive/power $drive/device/power -maxdepth 1 -type f -perm /444 {_names(VOLATILE, "!")} \
            -print0 2> /dev/null | sort -z | xargs -0 -r grep -s '' | sed "s,^$drive,$name," || true
        for feature in 2 0x23; do
            echo "$name $feature:" \
                "$(nvme get-feature /dev/${{drive##*/}} -f $feature 2> /dev/null || true)"
        done
    done
}}
"""


def settings(dump):
    """What each file and task of a dump says."""
    all = {}
    # What is read of a guest does not end in blanks, its lines may.
    for line in map(str.rstrip, dump.splitlines()):
        name, _, value = line.partition(":")
        all.setdefault(name if value else line, []).append(value)
    for name in list(all):
        # The board moves a duty that is its own.
        if re.search(r"/pwm\d$", name) and all.get(f"{name}_enable") == ["2"]:
            del all[name]
        # Interrupts, and their threads, go to another CPU for good when theirs goes offline.
        elif all[name][0].startswith("Name:\tirq/"):
            del all[name]
        # Workers of workqueues, those that rescue others among them, go to where there is work.
        elif name.startswith("flags "):
            if int(all.pop(name)[0]) & PF_WQ_WORKER:
                task = name.removeprefix("flags ")
                all.pop(f"/proc/{task}/task/{task}/status", None)
    return all


def same(before, after, otherwise="", boots=False):
    """Fails unless both dumps say the same, of all that is in both or can stay. After other `boots`
    all tasks are others."""
    before, after = settings(before), settings(after)
    names = before.keys() | after.keys()
    # Tasks begin and end.
    names = {name for name in names
             if not name.startswith("/proc/") or name in before and name in after and not boots}
    lines = [f"{what}: {before.get(what)} -> {after.get(what)}"
             for what in sorted(names) if before.get(what) != after.get(what)]
    expect(not lines, "\n".join([*lines[:40], otherwise]))
    tasks = sum(name.startswith("/proc/") for name in names)
    expect(len(names) - tasks > 200 and (boots or tasks > 20), f"only {len(names)} are in both dumps")
