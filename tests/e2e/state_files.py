"""A look into the mapped state of a job (ps_server/store/state_file.h): no network and no process is asked."""
import pathlib
import struct


def _newest_version(path):
    """The version in the newest whole buffer of a task's file; None: it has none, or is no state file (any more)."""
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
        return None  # its server removes or makes it at this moment


def applied_version(state_dir, tasks):
    """The newest version that all tasks hold, read from their mapped state; -1: none.

    A test can look while the processes are cut off, stopped or dead.
    """
    versions = []
    for task in range(tasks):
        files = list(pathlib.Path(state_dir).glob(f"*-{task}-of-{tasks}"))
        versions.append(_newest_version(files[0]) if len(files) == 1 else None)
    return -1 if None in versions else min(versions)
