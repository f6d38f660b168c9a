"""Damage that makes a library panic becomes an error, and prints nothing."""

import random
import shutil
import subprocess
import sys

from conftest import FIXTURES

READ = """
import sys

import dsconvert

caught = 0
for path in sys.argv[1:]:
    try:
        for split in dsconvert.open(path, mmap=False, verify_checksums=False).splits.values():
            for at in range(len(split)):
                try:
                    split[at]
                except dsconvert.Error as error:
                    caught += "panic" in repr([str(error), error.__cause__, error.__notes__])
    except dsconvert.Error as error:
        pass
print(caught)
"""


def test_caught_panics_print_nothing(tmp_path):
    damaged = []
    for kind in ["text", "images"]:
        for seed in range(60):
            choose, copy = random.Random(f"{kind} {seed}"), tmp_path / f"{kind}-{seed}"
            shutil.copytree(FIXTURES / f"golden/v3/{kind}-parquet", copy)
            shard = choose.choice(sorted(copy.glob("*/*.parquet")))
            content = bytearray(shard.read_bytes())
            for _ in range(choose.randrange(1, 4)):
                content[choose.randrange(4, len(content) - 8)] ^= 1 << choose.randrange(8)
            shard.write_bytes(content)
            damaged.append(copy)
    ran = subprocess.run([sys.executable, "-c", READ, *damaged], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr[-2000:]
    print("caught panics:", ran.stdout)
