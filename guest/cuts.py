"""Power cuts under a real kernel: the target runs in the guest, on disks that lose their caches."""

import random
import socket
import struct

from bed import ADDRESS, Guest, expect, tools
from initiator import BLOCK, Host
from volatile import SECTOR, Disk, power_fails

NQN = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000004"
FILE, RAID = 1, 2
BLOCKS = 64
DEPTH = 16
MEMBERS = 3
SIZE = 8 << 20
# The guest's address and the port it serves at.
GUEST, PORT = "10.0.2.15", 4420
# The most acknowledgements before power may go again.
ACKNOWLEDGED = 300


class Unit:
    """What is kept or lost as a whole: the values it was given, in order, from the first that it
    may still have."""

    def __init__(self, value=0):
        self.values, self.first, self.settled = [value], 0, 0

    def give(self, value):
        self.values.append(value)
        return self.first + len(self.values) - 1

    def keep(self, number):
        """Nothing before `number` comes back."""
        drop = max(0, number - self.first)
        self.values, self.first = self.values[drop:], self.first + drop


class Ledger:
    """What the target has acknowledged, kept on this side of the cut."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # A block of the array is whole; of a file each sector is for itself.
        units = {FILE: BLOCK // SECTOR, RAID: 1}
        self.blocks = {
            (nsid, lba): [Unit() for _ in range(count)]
            for nsid, count in units.items() for lba in range(BLOCKS)
        }
        self.flights, self.version, self.acknowledged = {}, 0, 0

    def send(self, host):
        """One request more, if its block is free."""
        cid = next(cid for cid in range(1, DEPTH + 2) if cid not in self.flights)
        nsid, lba = self.random.choice((FILE, RAID)), self.random.randrange(BLOCKS)
        if self.random.random() < 0.1:
            settled = {at: units[0].settled for at, units in self.blocks.items() if at[0] == nsid}
            self.flights[cid] = None, settled, True
            host.flush(cid, nsid)
        elif all(at != (nsid, lba) for at, *_ in self.flights.values()):
            self.version += 1
            durable = self.random.random() < 0.2
            numbers = [unit.give(self.version) for unit in self.blocks[nsid, lba]]
            self.flights[cid] = (nsid, lba), numbers[0], durable
            data = struct.pack("<Q", self.version) * (BLOCK // 8)
            host.write(cid, nsid, lba, data, durable)

    def hear(self, host):
        cid, status, _, _ = host.io.answer()
        expect(status == 0, f"a request failed with status {status:#x}")
        at, number, durable = self.flights.pop(cid)
        self.acknowledged += 1
        for place, number in [(at, number)] if at else number.items():
            for unit in self.blocks[place]:
                unit.settled = max(unit.settled, number)
                # Every acknowledged write of an array stays.
                if durable or place[0] == RAID:
                    unit.keep(number)

    def check(self, host):
        """Reads everything after a cut."""
        self.flights.clear()
        for (nsid, lba), units in self.blocks.items():
            words = struct.unpack(f"<{BLOCK // 8}Q", host.read(nsid, lba))
            size = len(words) // len(units)
            for index, unit in enumerate(units):
                part = set(words[index * size : (index + 1) * size])
                place = f"namespace {nsid}, block {lba}, part {index}"
                expect(len(part) == 1 and part <= set(unit.values),
                       f"{place}: {part}, acknowledged or sent was {unit.values}")
                units[index] = Unit(part.pop())


class Machine:
    """A guest that serves a disk and an array of disks to this machine."""

    def __init__(self, bed, number, tools, disks, options):
        folder = bed.folder / f"cut{number}"
        folder.mkdir()
        with socket.socket() as free:
            free.bind((ADDRESS, 0))
            port = free.getsockname()[1]
        # With caches that are flushed when the guest says so, as real ones are.
        backend = "driver=raw,cache.direct=on,cache.writeback=on,file.driver=nbd,file.path="
        drives = [f"{backend}{disk.path}" for disk in disks]
        self.guest = Guest(bed.image, folder, drives=[tools, *drives], forward=port)
        names = [f"/dev/vd{letter}" for letter in "cdefgh"[: len(disks)]]
        array = ",".join(names[1:]) + options
        try:
            # Not on 127.0.0.1, which is the host's: see `init`.
            self.guest.run(f"""mkdir -p /tmp/tools; mount -o ro /dev/vdb /tmp/tools
                setsid /tmp/tools/ebb serve --listen {GUEST}:{PORT} --nqn {NQN} \\
                    --scheduler interrupt --namespace file:{names[0]} --namespace raid5:{array} \\
                    > /tmp/serve 2>&1 &
                until grep -q '^listening on' /tmp/serve; do
                    kill -0 $! || {{ cat /tmp/serve; exit 1; }}
                    sleep 0.1
                done""")
            self.host = Host(port, NQN)
        except BaseException:
            self.guest.stop()
            raise

    def cut(self, ledger):
        """Power goes while requests are under way; what was acknowledged is still heard."""
        self.guest.stop()
        try:
            while ledger.flights:
                ledger.hear(self.host)
        except (ConnectionError, OSError):
            pass
        self.host.close()


def power_cuts(bed):
    """the target on disks with volatile caches, power cut under load; nothing promised is lost"""
    drive = tools(bed.folder, bed.ebb)
    disks = [Disk(bed.folder / f"disk{at}", SIZE, seed=at) for at in range(1 + MEMBERS)]
    ledger, create = Ledger(seed=1), ",create,journal=16,chunk=16KiB"
    machine = None
    try:
        for cut in range(bed.cuts + 1):
            machine = Machine(bed, cut, drive, disks, create)
            create = ""
            ledger.check(machine.host)
            if cut == bed.cuts:
                break
            wanted = ledger.acknowledged + ledger.random.randrange(1, ACKNOWLEDGED)
            while ledger.acknowledged < wanted or not power_fails(disks):
                while len(ledger.flights) < DEPTH:
                    ledger.send(machine.host)
                ledger.hear(machine.host)
            machine.cut(ledger)
            for disk in disks:
                disk.cut()
        lost = sum(disk.lost for disk in disks)
        print(f"# {bed.cuts} cuts, {ledger.acknowledged} acknowledgements, {lost} sectors lost")
        expect(lost > 0, "no cut lost anything: the disks keep what they should not")
    finally:
        if machine is not None:
            machine.guest.stop()
        for disk in disks:
            disk.close()
