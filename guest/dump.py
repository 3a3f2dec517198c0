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


# Defines features, which prints those of all drives, or sets some: DRIVE FEATURE VALUE ... Emulated,
# nvme-cli takes a second to start (struct nvme_admin_cmd, NVME_IOCTL_ADMIN_CMD; linux/nvme_ioctl.h).
FEATURES = r"""features() {
    perl -e '
        sub admin {
            my ($drive, $opcode, $feature, $value) = @_;
            open my $file, "<", $drive or return "no answer";
            my $command = pack "CCSL3Q2L2L6L2", $opcode, (0) x 9, $feature, $value, (0) x 6;
            my $status = ioctl $file, 0xC0484E41, $command;
            return $status == 0 ? unpack "x68L", $command : "refused" if defined $status;
            "no answer"
        }
        # By what it serves: whoever has the old controller open when a drive comes back, Ebb or
        # another, makes Linux give the new one another name.
        my %drives;
        for my $folder (glob "/sys/class/nvme/nvme*") {
            open my $file, "<", "$folder/subsysnqn" or next;
            my $serves = <$file>;
            chomp $serves;
            $drives{$serves} = $folder =~ s,.*/,/dev/,r;
        }
        while (my ($number, $feature, $value) = splice @ARGV, 0, 3) {
            my ($serves) = grep { /10$number$/ } keys %drives;
            my $told = admin($drives{$serves}, 9, oct $feature, $value);
            die "drive $number, feature $feature, value $value: $told" if $told =~ /[a-z]/;
            exit if !@ARGV;
        }
        for my $serves (sort keys %drives) {
            my $name = $serves =~ tr/:/_/r;
            print "drive $name $_:", admin($drives{$serves}, 10, oct $_, 0), "\n" for "2", "0x23";
        }
    ' "$@"
}
"""
# Defines dump, which prints all of it, but of keyboards, whose numbers are others after a start.
DUMP = FEATURES + f"""dump() {{
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
        name="drive $(tr : _ < $drive/subsysnqn)"
        find $drive/power $drive/device/power -maxdepth 1 -type f -perm /444 {_names(VOLATILE, "!")} \
            -print0 2> /dev/null | sort -z | xargs -0 -r grep -s '' | sed "s,^$drive,$name," || true
    done
    features
}}
"""


def settings(dump):
    """What each file and task of a dump says."""
    all = {}
    # What is read of a guest does not end in blanks, its lines may.
    for line in map(str.rstrip, dump.splitlines()):
        # A chip that comes back has another number; some names of packages have a colon.
        line = re.sub(r"(?<=/hwmon/hwmon)\d+(?=/)", "*", line)
        name, _, value = re.match(r"(.*?)(:(?!\d+(?:[:]\d+)*/)|$)(.*)", line).groups()
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


def differing(before, after, boots=False):
    """Of all that is in both dumps or can stay, what is not the same: by name, then and now. After
    other `boots` all tasks are others."""
    before, after = settings(before), settings(after)
    names = before.keys() | after.keys()
    # Tasks begin and end.
    names = {name for name in names
             if not name.startswith("/proc/") or name in before and name in after and not boots}
    tasks = sum(name.startswith("/proc/") for name in names)
    expect(len(names) - tasks > 200 and (boots or tasks > 20), f"only {len(names)} are in both dumps")
    return {what: (before.get(what), after.get(what))
            for what in sorted(names) if before.get(what) != after.get(what)}


def same(before, after, otherwise="", boots=False, theirs=lambda name, values: False):
    """Fails unless both dumps say the same, but for what is now as somebody else has set it."""
    lines = [f"{what}: {was} -> {now}" for what, (was, now) in differing(before, after, boots).items()
             if not theirs(what, now)]
    expect(not lines, "\n".join([*lines[:40], otherwise]))
