"""`ebb serve` on what hangs: a frozen file system, a suspended device, a member of an array. Hosts of
other namespaces do not notice, and the end does not wait for it."""

import json
import subprocess

from bed import expect, until
from steps import PATIENCE

# Of the guest's own loopback: 127.0.0.1 is this machine's there.
PLACE = "127.0.0.2"
LOAD = f"/tmp/tools/ebb load --connect {PLACE}:4420 --json --quiet --timeout {PATIENCE}s --verify"
HEALTHY, *HUNG = 1, 2, 3, 4


def disk(folder):
    """One for a guest to freeze."""
    path = folder / "frozen.img"
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", "frozen", path, "96M"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return f"file={path},format=raw"


def loopback(bed):
    """Gives the guest a place that is its own; 127.0.0.1, which comes with it, stays this machine."""
    bed.guest.run(f"ip link set lo up; ip addr flush dev lo; ip addr add {PLACE}/32 dev lo")


class Served:
    """A target in the guest, with a namespace of memory, and with others: on a file system of its
    own, on a device of dm, and on an array with a member on that file system."""

    def __init__(self, bed):
        self.bed = bed
        # What hangs here hangs on purpose.
        loopback(bed)
        bed.guest.run("""echo 0 > /proc/sys/kernel/hung_task_timeout_secs
            modprobe -a loop dm_mod
            mkdir /tmp/frozen /srv/served
            mount $(blkid -L frozen) /tmp/frozen
            truncate -s 32M /srv/served/loop
            loop=$(losetup -f --show /srv/served/loop)
            dmsetup create served --table "0 65536 linear $loop 0"
            """)

    def start(self):
        array = "/tmp/frozen/member,/srv/served/a,/srv/served/b"
        self.background("serve", f"""/tmp/tools/ebb serve --listen {PLACE}:4420 \
            --metrics {PLACE}:9420 --scheduler interrupt --namespace ram:16MiB \
            --namespace file:/tmp/frozen/disk,create,size=32MiB \
            --namespace file:/dev/dm-0 \
            --namespace raid5:{array},create,size=32MiB,journal=16""")
        until("it serves", lambda: "metrics on" in self.said("serve") or self.code("serve"), PATIENCE)
        expect(not self.code("serve"), f"it does not serve: {self.said('serve')}")

    def background(self, name, command):
        """Runs a command; what it says and how it ends is in files."""
        self.bed.guest.run(f"""rm -f /tmp/{name}.code
            setsid sh -c '{command} & echo $! > /tmp/{name}.pid; wait $!; echo $? > /tmp/{name}.code' \\
                > /tmp/{name}.said 2>&1 < /dev/null &
            until [ -s /tmp/{name}.pid ]; do sleep 0.1; done""")

    def said(self, name):
        return self.bed.guest.run(f"cat /tmp/{name}.said")

    def code(self, name):
        """How a command has ended, or nothing."""
        return self.bed.guest.run(f"cat /tmp/{name}.code 2> /dev/null || true")

    def ends(self, name, code):
        told = until(f"{name} ends", lambda: self.code(name), PATIENCE)
        expect(told == str(code), f"{name} ended with code {told}: {self.said(name)}")

    def stalled(self):
        told = self.bed.guest.json(f"/tmp/tools/ebb status {PLACE}:9420 --json")
        return [space["id"] for space in told["namespaces"] if space["stalled"]]

    def freeze(self):
        """Lets them hang amid the writes of a host with many queues to each."""
        for space in HUNG:
            self.background(f"writes{space}", f"{LOAD} --namespace {space} --rw randwrite "
                            "--block-size 8KiB --connections 4 --queue-depth 64 --duration 10s")
        self.bed.guest.run("""until [ $(stat -c %b /tmp/frozen/disk) -gt 64 ]; do sleep 0.1; done
            fsfreeze -f /tmp/frozen
            dmsetup suspend --nolockfs served""")
        until("all are stalled", lambda: self.stalled() == HUNG, PATIENCE)

    def thaw(self):
        self.bed.guest.run("dmsetup resume served; fsfreeze -u /tmp/frozen")


def verified(told):
    """A load wrote, and read back what it wrote; that all was right its exit code has said."""
    expect(told["verify"]["read_back"] and told["verify"]["right_blocks"] > 0, told)


def frozen(bed):
    """ebb serve on what hangs, a file, a device, a member: others are served, nothing is lost, the end is bounded"""
    served = Served(bed)
    served.start()
    served.freeze()
    told = bed.guest.json(f"{LOAD} --namespace {HEALTHY} --rw randrw --queue-depth 8 --duration 2s")
    verified(told)
    expect(served.stalled() == HUNG, "something goes on that hung")
    served.thaw()
    for space in HUNG:
        served.ends(f"writes{space}", 0)
        verified(json.loads(served.said(f"writes{space}")))

    served.freeze()
    bed.guest.run("kill $(cat /tmp/serve.pid)")
    until("it says what it ends without",
          lambda: served.said("serve").count("is still stalled") == len(HUNG), PATIENCE)
    # The kernel keeps the process until it can have back what the disk was given.
    served.thaw()
    served.ends("serve", 3)
    bed.guest.run("kill $(cat /tmp/writes*.pid) || true; umount /tmp/frozen; dmsetup remove served; losetup -D")
