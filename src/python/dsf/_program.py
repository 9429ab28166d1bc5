"""The program: where it is, and its events."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

Event = Dict[str, Any]
PathLike = Union[str, "os.PathLike[str]"]


class Error(Exception):
    """The program failed. The attributes are the fields of its last event, `error`; see `dsf help`, "Exit codes".

    kind: refused, missing, data, corrupt, io, computation, stopped, busy; `failed` if the program gave no reason.
    code: exit code.
    flag, value, path, line, row, reason: what is at fault and what would be right, where they apply.
    """

    def __init__(self, text: str, code: int, event: Optional[Mapping[str, Any]] = None):
        super().__init__(text)
        event = event or {}
        self.code = code
        self.kind: str = event.get("kind", "failed")
        self.flag: Optional[str] = event.get("flag")
        self.value: Optional[str] = event.get("value")
        self.path: Optional[str] = event.get("path")
        self.line: Optional[int] = event.get("line")
        self.row: Optional[int] = event.get("row")
        self.reason: Optional[str] = event.get("reason")


def find() -> str:
    """Path of the program: $DSF_BIN, else the one installed with this module, else the first `dsf` on the path."""
    given = os.environ.get("DSF_BIN")
    if given:
        return given
    name = "dsf.exe" if sys.platform == "win32" else "dsf"
    schemes = [None, f"{os.name}_user"]
    folders = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    for folder in folders:
        file = Path(folder) / name
        if file.is_file():
            return str(file)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError("the program `dsf` is not installed: pip install dsf, or set DSF_BIN to its path")
    return found


def run(arguments: Sequence[PathLike], *, cwd: Optional[PathLike] = None, env: Optional[Mapping[str, str]] = None) -> Iterator[Event]:
    """Runs `dsf ARGUMENTS --json` and yields its events as they are printed, one dict each.

    `env` is added to the environment. Closing the iterator stops the program after a checkpoint; the same call
    continues it.

    Raises `Error` if the program fails, after all its events were yielded.
    """
    if isinstance(arguments, (str, bytes)):
        raise TypeError("arguments is a list of words, such as ['mqar', '--mixer', 's6']")
    command = [find(), *(os.fspath(word) for word in arguments), "--json"]
    environment = None if env is None else {**os.environ, **env}
    # Errors go to a file: nobody reads them while the events are read, and a full pipe would stop the program.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            encoding="utf-8",
        )
        assert process.stdout is not None
        last: Event = {}
        try:
            for line in process.stdout:
                last = json.loads(line)
                if last["event"] != "error":
                    yield last
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        finally:
            process.stdout.close()
            code = process.wait()
        if code:
            errors.seek(0)
            said = errors.read().strip()
            event = last if last.get("event") == "error" else None
            text = event["text"] if event else said or f"dsf ended with exit code {code}"
            raise Error(text, code, event)
