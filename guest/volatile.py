"""Disks with a volatile write cache, served to qemu over NBD, that lose power.

The protocol's fixed newstyle handshake and simple replies, as qemu speaks them:
https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
"""

import contextlib
import random
import socket
import struct
import threading

SECTOR = 512
# So many sectors in caches are lost in part: all of them are kept once in 2^64.
AT_STAKE = 64
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
OPTION_EXPORT, OPTION_ABORT, OPTION_INFO, OPTION_GO = 1, 2, 6, 7
REPLY_ACK, REPLY_INFO, REPLY_UNSUPPORTED = 1, 3, 2**31 + 1
INVALID = 22


class Disk:
    """A disk at a Unix socket. What was written and not flushed since is kept or lost, each sector
    for itself, when power goes."""

    def __init__(self, path, size, seed):
        self.path, self.size = path, size
        self.durable = bytearray(size)
        self.loose = {}
        self.lost = 0
        self.random = random.Random(seed)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.clients = []
        self.power, self.off = threading.Lock(), False
        self.closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.closed.set()
        self.listener.close()

    def cut(self):
        """Power goes; qemu is dead. Sectors that could have been lost and were not are as legal."""
        for client in self.clients:
            client.join()
        self.clients.clear()
        for sector, versions in self.loose.items():
            kept = self.random.randrange(-1, len(versions))
            self.lost += kept + 1 < len(versions)
            if kept >= 0:
                self._store(sector, versions[kept])
        self.loose.clear()
        self.off = False

    def _store(self, sector, data):
        self.durable[sector * SECTOR : (sector + 1) * SECTOR] = data

    def _accept(self):
        while not self.closed.is_set():
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            client = threading.Thread(target=self._serve, args=(stream,), daemon=True)
            self.clients.append(client)
            client.start()

    def _serve(self, stream):
        with stream, stream.makefile("rwb") as wire:
            try:
                if self._greet(wire):
                    while self._request(wire):
                        pass
            except (OSError, struct.error):
                pass  # qemu was killed.

    def _greet(self, wire):
        """Agrees on the only export; True when requests follow."""
        flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA
        wire.write(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 1))
        wire.flush()
        struct.unpack(">I", wire.read(4))
        while True:
            _, option, length = struct.unpack(">8sII", wire.read(16))
            wire.read(length)
            if option == OPTION_EXPORT:
                wire.write(struct.pack(">QH", self.size, flags) + bytes(124))
                wire.flush()
                return True
            replies = [(REPLY_UNSUPPORTED, b"")]
            if option in (OPTION_INFO, OPTION_GO):
                replies = [(REPLY_INFO, struct.pack(">HQH", 0, self.size, flags)), (REPLY_ACK, b"")]
            for kind, data in replies:
                wire.write(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)
            wire.flush()
            if option in (OPTION_GO, OPTION_ABORT):
                return option == OPTION_GO

    def _request(self, wire):
        _, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", wire.read(28))
        data, error = wire.read(length) if kind == WRITE else b"", 0
        with self.power:
            if self.off or kind == DISCONNECT:
                # Never answered: what a disk without power would have done is nobody's to know.
                wire.read()
                return False
            if kind == READ:
                data = self._read(offset, length)
            elif kind == WRITE:
                self._write(offset, data, flags & FUA)
                data = b""
            elif kind == FLUSH:
                for sector, versions in self.loose.items():
                    self._store(sector, versions[-1])
                self.loose.clear()
            else:
                error = INVALID
        wire.write(struct.pack(">IIQ", 0x67446698, error, handle) + data)
        wire.flush()
        return True

    def _read(self, offset, length):
        data = bytearray(self.durable[offset : offset + length])
        for sector in range(offset // SECTOR, (offset + length) // SECTOR):
            if sector in self.loose:
                at = sector * SECTOR - offset
                data[at : at + SECTOR] = self.loose[sector][-1]
        return data

    def _write(self, offset, data, durable):
        for at in range(0, len(data), SECTOR):
            sector, part = (offset + at) // SECTOR, data[at : at + SECTOR]
            if durable:
                self.loose.pop(sector, None)
                self._store(sector, part)
            else:
                self.loose.setdefault(sector, []).append(part)


def power_fails(disks):
    """All of them at one moment, unless too little is in their caches for anything to be lost."""
    with contextlib.ExitStack() as moment:
        for disk in disks:
            moment.enter_context(disk.power)
        fails = sum(len(disk.loose) for disk in disks) >= AT_STAKE
        for disk in disks:
            disk.off = fails
    return fails
