"""Makes the data file of ``turnlog_vocabulary`` from the official file.

    python tools/make_vocabulary.py o200k_base.tiktoken

The official file is the one that tiktoken downloads; wheels that carry it name it ``fb374d41...``. Its hash is checked
before anything is written, and the written file is expanded again and compared.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from base64 import b64decode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "layers" / "dependencies"))

import turnlog_vocabulary as vocabulary


def main() -> int:
    """Returns 0, or 1 when the given file is not the official one."""
    parser = argparse.ArgumentParser(description="Make the data file from the official file.")
    parser.add_argument("official", type=Path, help="the official o200k_base.tiktoken")
    official: bytes = parser.parse_args().official.read_bytes()
    digest = hashlib.sha256(official).hexdigest()
    if digest != vocabulary.SHA256:
        sys.stderr.write(f"the file's sha256 is {digest}, not {vocabulary.SHA256}\n")
        return 1
    lines = [line.split() for line in official.splitlines()]
    if [int(rank) for _, rank in lines] != list(range(len(lines))):
        sys.stderr.write("the file's tokens are not in order of rank\n")
        return 1
    target = Path(vocabulary.__file__).with_name(vocabulary.DATA_FILE)
    target.write_bytes(vocabulary.pack([b64decode(token) for token, _ in lines]))
    if vocabulary.expand() != official:
        target.unlink()
        sys.stderr.write("the data file does not expand to the official one\n")
        return 1
    sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes, {len(lines)} tokens\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
