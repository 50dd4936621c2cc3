"""A clone whose training is in another process, which has files of its own where the launcher has the supervisor's pipe.

arguments: FOLDER  where the files are written
"""
import os
import pathlib
import subprocess
import sys

if len(sys.argv) == 2:
    sys.exit(subprocess.run([sys.executable, __file__, sys.argv[1], "trains"], check=False).returncode)
FILES = [open(pathlib.Path(sys.argv[1]) / f"{i}.data", "wb") for i in range(20)]
print("the pipe is a file:", any(os.environ["PUSHPULL_REPORT_DESCRIPTOR"].startswith(f"{file.fileno()}:")
                                 for file in FILES))
sys.argv[1:] = []
import raw_loop  # noqa: E402,F401  pylint: disable=unused-import,wrong-import-position
