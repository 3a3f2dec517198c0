"""A host of NVMe/TCP that hears every acknowledgement and survives its target: no kernel between.

Only what the test of power cuts needs: 4 KiB blocks, data in capsules, no digests. Clauses are of
the NVMe/TCP transport specification 1.1 and Base 2.0.
"""

import socket
import struct

from bed import ADDRESS

BLOCK = 4096
HOST = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000003"
IC_REQUEST, CAPSULE, RESPONSE, TO_HOST = 0, 4, 5, 7
WRITE, READ, FLUSH = 1, 2, 0
FUA = 1 << 30
SUCCESS_FLAG = 8
IN_CAPSULE, TRANSPORT = 0x01, 0x5A


class Queue:
    """A queue and its connection. Commands are known by identifiers, which the caller chooses."""

    def __init__(self, port, number, controller, nqn):
        self.stream = socket.create_connection((ADDRESS, port), timeout=120)
        self.stream.sendall(struct.pack("<BBBBIHBBI112x", IC_REQUEST, 0, 128, 0, 128, 0, 0, 0, 0))
        self._take(128)
        names = nqn.encode().ljust(256, b"\0"), HOST.encode().ljust(256, b"\0")
        data = bytes(range(16)) + struct.pack("<H", controller) + bytes(238)
        data += names[0] + names[1] + bytes(256)
        connect = struct.pack("<HHHBBI", 0, number, 63, 0, 0, 0)
        self.send(0x7F, 0, fabrics=1, rest=connect, data=data)
        self.controller = self.answer()[2] & 0xFFFF

    def send(self, opcode, cid, nsid=0, fabrics=None, rest=b"", data=b"", length=0):
        """Sends a command with the bytes from 40 on, and data in the capsule or to be read."""
        kind = TRANSPORT if length else IN_CAPSULE
        words = nsid if fabrics is None else fabrics
        sqe = struct.pack("<BBHI16x", opcode, 0x40, cid, words)
        sqe += struct.pack("<QI3xB", 0, length or len(data), kind) + rest.ljust(24, b"\0")
        place = 72 if data else 0
        header = struct.pack("<BBBBI", CAPSULE, 0, 72, place, 72 + len(data))
        self.stream.sendall(header + sqe + data)

    def answer(self):
        """The next completion: its identifier, status, result, and the data of a read."""
        data = b""
        while True:
            kind, flags, header, place, total = struct.unpack("<BBBBI", self._take(8))
            body = self._take(total - 8)
            if kind == TO_HOST:
                data += body[place - 8 :]
                if flags & SUCCESS_FLAG:
                    return struct.unpack("<H", body[:2])[0], 0, 0, data
            elif kind == RESPONSE:
                result, cid, status = struct.unpack("<Q4xHH", body[:16])
                return cid, status >> 1, result, data
            else:
                raise ConnectionError(f"the target sent a PDU of type {kind:#x}")

    def _take(self, count):
        data = b""
        while len(data) < count:
            part = self.stream.recv(count - len(data))
            if not part:
                raise ConnectionError("the target hung up")
            data += part
        return data


class Host:
    """A controller with one I/O queue."""

    def __init__(self, port, nqn):
        self.admin = Queue(port, 0, 0xFFFF, nqn)
        enable = struct.pack("<B3xIQ", 0, 0x14, 0x460001)  # CC: EN, entries of 64 and 16 bytes
        self.admin.send(0x7F, 1, fabrics=0, rest=enable)
        self.admin.answer()
        self.io = Queue(port, 1, self.admin.controller, nqn)

    def write(self, cid, nsid, block, data, durable):
        rest = struct.pack("<QI", block, (len(data) // BLOCK - 1) | (FUA if durable else 0))
        self.io.send(WRITE, cid, nsid, rest=rest, data=data)

    def flush(self, cid, nsid):
        self.io.send(FLUSH, cid, nsid)

    def read(self, nsid, block, count=1):
        """Reads at once; nothing else may be on its way."""
        rest = struct.pack("<QI", block, count - 1)
        self.io.send(READ, 0, nsid, rest=rest, length=count * BLOCK)
        _, status, _, data = self.io.answer()
        if status or len(data) != count * BLOCK:
            raise ConnectionError(f"block {block} of namespace {nsid}: status {status:#x}")
        return data

    def close(self):
        self.io.stream.close()
        self.admin.stream.close()
