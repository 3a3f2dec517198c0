"""`ebb run` as a service of systemd, with the units as they ship: it ends in every way that systemd
has, and everything is as it was."""

import json
from pathlib import Path

import server
from bed import ADDRESS, HARDWARE, SERVER, SYSTEMD, Failure, Guest, expect, tools, until
from dump import DUMP, same
from frozen import PLACE, loopback
from steps import HOST, PATIENCE

UNITS = Path(__file__).resolve().parent.parent / "packaging" / "systemd"
CONFIG = """apply = true
policy = "pacer+pacman+eadc"
plf = "50 %"
ssd_budget = "{}"
"""
# Makes the machine what it is, at each of its starts, before anything of Ebb.
PARTS = """[Unit]
DefaultDependencies=no
After=local-fs.target ebb-agent.service
Before=ebb-restore.service ebb.service
[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=200
ExecStart=/bin/bash -eu /etc/parts
[Install]
WantedBy=multi-user.target
"""


class Bed(server.Bed):
    """A guest whose first process is systemd."""

    def set_up(self):
        """Writes what its parts are."""
        connect = "\n".join(
            f"until nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn}; do sleep 1; done"
            for target in self.targets)
        self.guest.run(f"""mkdir -p /opt/tools /etc/nvme
            cp /dev/stdin /etc/systemd/system/parts.service << 'END'\n{PARTS}END
            cat > /etc/parts << 'END'
modprobe -a ebb_hw nvme-tcp
mount -o ro /dev/vdb /opt/tools
{connect}
setsid /opt/tools/hardware /etc/server.toml /tmp/faults 1 > /tmp/truth 2> /tmp/physics < /dev/null &
echo $! > /tmp/physics.pid
until [ -s /tmp/truth ]; do sleep 0.1; done
END
            cat > /etc/server.toml << 'END'\n{(HARDWARE / "server.toml").read_text()}\nEND
            echo {HOST} > /etc/nvme/hostnqn
            cut -d: -f3 /etc/nvme/hostnqn > /etc/nvme/hostid""")

    def packages(self):
        """What the guest has besides the programs."""
        return []

    def install(self):
        """As docs/install.md says."""
        self.guest.run("mkdir -p /etc/ebb; ln -s /opt/tools/ebb /usr/bin/ebb")
        for unit in UNITS.iterdir():
            self.guest.run(f"cat > /etc/systemd/system/{unit.name} << 'END'\n{unit.read_text()}END")

    def snapshot(self, name):
        self.guest.run(f"{DUMP}\ndump > /var/tmp/{name}")

    def as_found(self, otherwise, boots=False):
        """Fails unless everything is as before the service was ever started."""
        self.snapshot("after")
        read = self.guest.run("cat /var/tmp/before; echo ===; cat /var/tmp/after").split("===\n")
        same(*read, otherwise=f"{otherwise}\n{self.journal()}", boots=boots)
        self.guest.run("[ ! -e /var/lib/ebb/originals.json ]")

    def journal(self):
        return self.guest.run("journalctl --no-pager -o cat -n 40 -u ebb -u ebb-restore")

    def show(self, *names, unit="ebb"):
        """What systemd says of a unit, by property."""
        told = self.guest.run(f"systemctl show {unit} -p {','.join(names)}")
        return dict(line.split("=", 1) for line in told.splitlines())

    def acts(self, before=None):
        """Waits until the service acts and has the fans, with another main process than `before`;
        its number."""
        fans = f"cat {self.hwmon('ebb_board')}/pwm[1-4]_enable"

        def acting():
            shown = self.show("MainPID", "StatusText", "ActiveState")
            expect(shown["ActiveState"] != "failed", f"ebb.service failed:\n{self.journal()}")
            acts = shown["ActiveState"] == "active" and "acting" in shown["StatusText"]
            acts = acts and self.guest.run(fans).split() == ["1"] * 4
            return acts and shown["MainPID"] != before and shown["MainPID"]

        return self.until("ebb.service acts", acting)

    def until(self, what, condition):
        """Waits as `until` does; a failure has the service's journal."""
        try:
            return until(what, condition, PATIENCE)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.journal()}") from None

    def ended(self):
        """Waits until the service is at its end, and whatever it runs then; its result."""

        def over():
            shown = self.show("ActiveState", "Result")
            return shown["ActiveState"] in ("failed", "inactive") and shown["Result"]

        return self.until("ebb.service has ended", over)


def boot(bed):
    """a server whose first process is systemd boots"""
    bed.folder.mkdir()
    drive = tools(bed.folder, *server.programs(bed), packages=bed.packages())
    bed.guest = Guest(bed.image, bed.folder, SERVER, [drive], first=SYSTEMD)
    for number in range(2):
        server.serve_drive(bed, number)
    bed.set_up()
    bed.install()
    bed.guest.run("""systemctl daemon-reload
        systemctl enable --now parts || { journalctl --no-pager -u parts; exit 1; }
        systemctl is-system-running --wait || systemctl --failed""")
    bed.snapshot("before")


def starts(bed):
    """enabled and started, it is ready, has the fans, and no capabilities but those documented"""
    bed.guest.run(f"""cat > /etc/ebb/ebb.toml << 'END'\n{CONFIG.format("120 W")}END
        systemctl enable --now ebb-restore ebb""")
    pid = bed.acts()
    held = int(bed.guest.run(f"awk '/^CapEff/ {{ print $2 }}' /proc/{pid}/status"), 16)
    dac_override, sys_admin, sys_nice = 1, 21, 23
    expect(held == 1 << dac_override | 1 << sys_admin | 1 << sys_nice, f"capabilities: {held:#x}")


def journals(bed):
    """the journal finds what it decided by fields, with their priorities"""
    def found(match):
        told = bed.guest.attempt(f"journalctl --no-pager -q -u ebb -o json -n 1 {match}")[1]
        return told and json.loads(told)

    bed.until("the journal has its state", lambda: found("EBB_STATE=acting"))
    state = found("EBB_STATE=acting")
    expect((state["MESSAGE"], state["PRIORITY"]) == ("acting", "5"), state)
    bed.until("the journal has what it did to fans", lambda: found("EBB_CONTROL=fan_duty"))
    fans = found("EBB_CONTROL=fan_duty")
    expect(fans["PRIORITY"] == "6" and fans["_SYSTEMD_UNIT"] == "ebb.service", fans)
    missing = {"EBB_OF", "EBB_POLICY", "EBB_REASON", "EBB_ASKED", "EBB_TO"} - fans.keys()
    expect(not missing, f"no {missing}: {fans}")


def reloads(bed):
    """systemctl reload gives it a new budget without a start"""
    before = bed.show("MainPID")
    bed.guest.run(f"""cat > /etc/ebb/ebb.toml << 'END'\n{CONFIG.format("26 W")}END
        systemctl reload ebb""")
    capped = """for drive in /dev/nvme?; do nvme get-feature $drive -f 2; done | grep -c value:0x0*2"""
    bed.until("both drives are capped", lambda: bed.guest.attempt(capped)[1] == "2")
    expect(bed.show("MainPID") == before, "it was started anew")


def stopped(bed):
    """systemctl stop: it ends in order, and everything is as found"""
    bed.guest.run("systemctl stop ebb")
    expect(bed.show("Result")["Result"] == "success", bed.journal())
    bed.as_found("after systemctl stop")


def killed(bed):
    """all of it is killed, as by the lack of memory: ExecStopPost= sets everything back"""
    bed.guest.run("""mkdir -p /run/systemd/system/ebb.service.d
        printf '[Service]\\nRestart=no\\n' > /run/systemd/system/ebb.service.d/test.conf
        systemctl daemon-reload
        systemctl start ebb""")
    bed.acts()
    bed.guest.run("systemctl kill --kill-who=all -s KILL ebb")
    result = bed.ended()
    expect(result == "signal", f"it ended by {result}")
    bed.as_found("after SIGKILL")


def hangs(bed):
    """a supervisor that hangs is ended by the watchdog and started again"""
    bed.guest.run("""rm -r /run/systemd/system/ebb.service.d
        systemctl daemon-reload
        systemctl reset-failed ebb
        systemctl start ebb""")
    pid = bed.acts()
    bed.guest.run(f"kill -STOP {pid}")
    bed.acts(before=pid)
    expect("watchdog" in bed.guest.run("journalctl --no-pager -u ebb"), bed.journal())


def resets(bed):
    """the machine is reset while Ebb acts: at its start ebb restore is first, then Ebb acts again"""
    bed.guest.run("""until grep -q boot /var/lib/ebb/originals.json; do sleep 0.1; done
        cat /proc/sys/kernel/random/boot_id > /var/tmp/boot
        sync /var/tmp/boot""")
    bed.guest.reset()
    bed.guest.run("! diff -q /proc/sys/kernel/random/boot_id /var/tmp/boot")
    bed.acts()
    restored = bed.show("Result", "ExecMainStatus", "ExecMainExitTimestampMonotonic",
                        unit="ebb-restore")
    began = bed.show("ExecMainStartTimestampMonotonic")["ExecMainStartTimestampMonotonic"]
    expect(restored["Result"] == "success" and restored["ExecMainStatus"] == "0", bed.journal())
    expect(0 < int(restored["ExecMainExitTimestampMonotonic"]) <= int(began),
           f"ebb restore was not first: {restored}, {began}\n{bed.journal()}")
    bed.guest.run("systemctl stop ebb")
    bed.as_found("after a reset and systemctl stop", boots=True)


NAME = "nqn.2026-11.org.example:service"
SERVED = f"""listen = ["{PLACE}:4420"]
nqn = "{NAME}"
namespace = ["file:/var/lib/ebb-serve/disk,create,size=32MiB", "file:/dev/loop0"]
metrics = "{PLACE}:9420"
"""
# Two disks of the kernel's, each with its own bytes on it, as they are read past the cache.
SUMS = """for disk in $(cat /var/tmp/disks); do
    dd if=$disk bs=1M iflag=direct status=none | sha256sum; done"""


def serves(bed):
    """ebb-serve.service, as docs/install.md says: its user serves a file and a block device to this kernel"""
    loopback(bed)
    bed.guest.run(f"""modprobe loop
        truncate -s 32M /var/tmp/loop; losetup /dev/loop0 /var/tmp/loop
        mkdir -p /etc/sysusers.d; cat > /etc/sysusers.d/ebb-serve.conf << 'END'\n{(UNITS.parent / "sysusers.d/ebb-serve.conf").read_text()}END
        systemd-sysusers
        cat > /etc/ebb/serve.toml << 'END'\n{SERVED}END
        systemctl enable --now ebb-serve || {{ journalctl --no-pager -u ebb-serve; exit 1; }}
        ebb ctl namespace list
        ! setpriv --reuid=nobody --clear-groups ebb ctl namespace list""")
    told = bed.guest.run("""pid=$(systemctl show ebb-serve -p MainPID --value)
        stat -c %U /proc/$pid
        grep -E '^Cap(Eff|Bnd)' /proc/$pid/status | cut -f2
        awk '/^Max open files/ { print $4 }' /proc/$pid/limits""").split()
    expect(told[0] == "ebb-serve" and int(told[1], 16) == int(told[2], 16) == 0 and told[3] == "65536", told)
    bed.guest.run(f"nvme connect -t tcp -a {PLACE} -s 4420 -n {NAME}")
    found = f"grep -lF {NAME} /sys/block/nvme[0-9]n*/device/subsysnqn | cut -d/ -f4 | sed s,^,/dev/,"
    until("both disks are there", lambda: len(bed.guest.attempt(found)[1].split()) == 2, PATIENCE)
    bed.guest.run(f"""{found} > /var/tmp/disks
        for disk in $(cat /var/tmp/disks); do
            dd if=/dev/urandom of=$disk bs=1M oflag=direct conv=fsync status=none 2>&1 | grep -v 'No space' || true
        done
        {SUMS} > /var/tmp/sums""")
    sums = bed.guest.run("cat /var/tmp/sums").split("\n")
    expect(len({*sums}) == 2, f"the disks hold the same: {sums}")


def serves_again(bed):
    """killed, systemd starts it again, the kernel comes back and reads what it wrote; stopped, it ends in order"""
    unit = "ebb-serve"
    before = bed.show("MainPID", unit=unit)["MainPID"]
    bed.guest.run("systemctl kill -s KILL ebb-serve")
    until("it is there again", lambda: bed.show("MainPID", "ActiveState", unit=unit)
          not in ({"MainPID": before, "ActiveState": "active"},)
          and bed.show("ActiveState", unit=unit)["ActiveState"] == "active", PATIENCE)
    expect(bed.guest.run(SUMS) == bed.guest.run("cat /var/tmp/sums"), "the disks are not as they were written")
    bed.guest.run(f"""nvme disconnect -n {NAME}
        systemctl stop ebb-serve
        losetup -d /dev/loop0""")
    result = bed.show("Result", unit=unit)["Result"]
    expect(result == "success", f"it ended by {result}")


STEPS = [boot, starts, journals, reloads, stopped, killed, hangs, resets, serves, serves_again]
SHORT = []
