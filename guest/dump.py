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
    "runtime_active_time", "runtime_suspended_time", "wakeup_.*",
    # Sensors and energy counters.
    r"temp\d+_input", r"fan\d+_input", r"power\d+_average", "energy_uj",
    # What only acts when it is written, or tells of events.
    "uevent",
    # What drivers do when a CPU comes or goes, numbered in the order in which they started.
    "states",
]
# Of control groups: what is set, not what is counted.
GROUPS = [r"cpuset\..*", r"cpu\.weight.*", r"cpu\.max.*", r"cpu\.idle", r"io\.weight", r"io\.max",
          r"cgroup\.type", r"cgroup\.subtree_control", r"cgroup\.controllers"]
# include/linux/sched.h
PF_WQ_WORKER = 0x20
TREES = ["/sys/devices/system/cpu", "/sys/devices/virtual/powercap", "/sys/devices/platform"]

# Defines dump, which prints all of it, and features, which sets some of drives: DRIVE FEATURE VALUE ...
# One program, since each that starts takes an emulated guest up to a second.
DUMP = r"""dump() { perl -e "$program"; }
features() { perl -e "$program" "$@"; }
program='
    # By what it serves: whoever has the old controller open when a drive comes back, Ebb or another,
    # makes Linux give the new one another name.
    my %drives;
    for my $folder (glob "/sys/class/nvme/nvme*") {
        my ($serves) = lines("$folder/subsysnqn") or next;
        $drives{$serves} = $folder =~ s,.*/,,r;
    }
    if (@ARGV) {
        while (my ($number, $feature, $value) = splice @ARGV, 0, 3) {
            my ($serves) = grep { /10$number$/ } keys %drives;
            my $told = admin($drives{$serves}, 9, oct $feature, $value);
            die "drive $number, feature $feature, value $value: $told" if $told =~ /[a-z]/;
        }
        exit;
    }
    # But of keyboards, whose numbers are others after a start.
    tree($_, sub { $_[1] ne "input" && $_[1] !~ /^(VOLATILE)$/ }) for qw(TREES);
    tree("/sys/fs/cgroup", sub { -d _ ? print "$_[0]\n" : $_[1] =~ /^(GROUPS)$/ });
    my $power = sub { ! -d _ && $_[1] !~ /^(VOLATILE)$/ };
    tree($_, $power) for grep { !/nvme/ } glob "/sys/block/*/device/power";
    for my $task (glob "/proc/[0-9]*/task/[0-9]*") {
        print map { "$task/status:$_\n" } grep { /^(Name|Cpus_allowed_list)/ } lines("$task/status");
    }
    for my $task (glob "/proc/[0-9]*") {
        my ($stat) = lines("$task/stat");
        print "flags $1: $2\n" if $stat =~ /^(\d+) \(.*\) . (?:[-\d]+ ){5}(\d+) /;
    }
    for my $serves (sort keys %drives) {
        my $name = "drive " . $serves =~ tr/:/_/r;
        my $folder = "/sys/class/nvme/$drives{$serves}";
        tree("$folder$_", $power, $folder, $name) for "/power", "/device/power";
        print "$name $_:", admin($drives{$serves}, 10, oct $_, 0), "\n" for "2", "0x23";
    }

    sub lines {
        open my $file, "<", shift or return;
        my @lines = <$file>;
        chomp @lines;
        return @lines;
    }
    # Prints what the files below a folder say that are wanted, by path and name.
    sub tree {
        my ($folder, $wanted, $old, $new) = @_;
        opendir my $names, $folder or return;
        for my $name (sort readdir $names) {
            my $path = "$folder/$name";
            next if $name =~ /^\.\.?$/ || !lstat $path || -l _ || !$wanted->($path, $name);
            if (-d _) {
                tree($path, $wanted, $old, $new);
            } elsif (-f _ && (stat _)[2] & 0444) {
                my $shown = $old ? $new . substr $path, length $old : $path;
                print map { "$shown:$_\n" } lines($path);
            }
        }
    }
    # struct nvme_admin_cmd, NVME_IOCTL_ADMIN_CMD; linux/nvme_ioctl.h. Where the machine is overloaded a
    # drive may be connecting again.
    sub admin {
        my ($drive, $opcode, $feature, $value) = @_;
        for (1 .. 600) {
            my $command = pack "CCSL3Q2L2L6L2", $opcode, (0) x 9, $feature, $value, (0) x 6;
            open my $file, "<", "/dev/$drive" or next;
            my $status = ioctl $file, 0xC0484E41, $command;
            return $status == 0 ? unpack "x68L", $command : "refused" if defined $status;
        } continue {
            select undef, undef, undef, 0.1;
        }
        return "no answer";
    }
'
""".replace("VOLATILE", "|".join(VOLATILE)).replace("GROUPS", "|".join(GROUPS)) \
    .replace("TREES", " ".join(TREES))


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
