"""`ebb replay` against block devices of a real kernel: what it refuses, and what it meters."""

import json

from bed import expect

DRIVE = "/dev/nvme3n1"
PATTERN = "/tmp/tools/ebb replay --pattern strided --rw write --size 4MiB --streams 2 --json"


def refused(bed, options, *says):
    """The replay ends with code 2 and says why."""
    told = bed.guest.run(f"""code=0
        {PATTERN} {options} {DRIVE} 2> /tmp/why > /dev/null || code=$?
        echo $code; cat /tmp/why""")
    expect(told.startswith("2\n"), f"{options}: {told}")
    for words in says:
        expect(words in told, f"{options}: '{words}' is not in {told}")


def replay(bed):
    """ebb replay leaves a drive that is in use or holds data alone, and meters one that it may have"""
    bed.guest.run(f"""mkfs.ext4 -q {DRIVE}
        mkdir -p /tmp/mounted
        mount {DRIVE} /tmp/mounted
        cp /tmp/tools/ebb /tmp/mounted""")
    refused(bed, "", DRIVE, "mounted")
    refused(bed, "--destroy nvme3n1", DRIVE, "mounted")
    bed.guest.run("umount /tmp/mounted")
    refused(bed, "", "ext4", "--destroy nvme3n1")
    refused(bed, "--destroy nvme2n1", "nvme2n1")
    bed.guest.run(f"""fsck.ext4 -fn {DRIVE}
        mount {DRIVE} /tmp/mounted
        cmp /tmp/tools/ebb /tmp/mounted/ebb
        umount /tmp/mounted""")
    told = json.loads(bed.guest.run(f"{PATTERN} --repeats 2 --destroy nvme3n1 {DRIVE}"))
    written = int(bed.guest.run("awk '{ print $7 * 512 }' /sys/block/nvme3c3n1/stat"))
    for repeat in told["repeats"]:
        total = repeat["total"]
        expect(total["bytes"] == 8 << 20 and not repeat["errors"], f"it did {total}")
        for meter in "rapl", "hwmon":
            energy = [energy for energy in repeat["energy"] if energy["meter"] == meter]
            expect(energy and energy[0]["origin"] == "measured" and energy[0]["joules"] > 0,
                   f"{meter}: {repeat['energy']}")
    expect(written >= 16 << 20, f"{written} bytes reached the drive")
    again = bed.guest.run(f"{PATTERN} --destroy nvme3n1 {DRIVE} > /dev/null; echo done")
    expect(again.strip() == "done", again)
