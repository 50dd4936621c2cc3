"""Reads the mapped state of a job from its files (ps_server/store/state_file.h), without asking any process."""
import pathlib
import struct


def _newest_version(path):
    """Returns the version in the newest complete buffer of a task's file; None if there is none, or if the file is not
    a state file."""
    try:
        with open(path, "rb") as file:
            header = file.read(48)
            if header[:8] != b"PPSTATE\n":
                return None
            record_bytes = struct.unpack_from("<q", header, 40)[0]
            file.seek(2048)
            held = struct.unpack("<Q", file.read(8))[0]
            newest = 1 if held & 4 else 0
            if not held & (1 << newest):
                return None
            file.seek(4096 + newest * record_bytes)
            return struct.unpack("<Q", file.read(8))[0]
    except (FileNotFoundError, struct.error):
        return None  # the server is removing or creating the file at this moment


def applied_version(state_dir, tasks):
    """Returns the newest version that all tasks hold in their mapped state; -1 if there is none.

    This works even while the processes are cut off, stopped or dead.
    """
    versions = []
    for task in range(tasks):
        files = list(pathlib.Path(state_dir).glob(f"*-{task}-of-{tasks}"))
        versions.append(_newest_version(files[0]) if len(files) == 1 else None)
    return -1 if None in versions else min(versions)
