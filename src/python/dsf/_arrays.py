"""Safetensors files as numpy arrays."""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping

from ._program import PathLike

if TYPE_CHECKING:
    import numpy

# Names of numpy's types; bf16, which numpy lacks, becomes float32.
_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}


class Weights(Mapping[str, "numpy.ndarray"]):
    """The tensors of a safetensors file by name, mapped from the file when they are asked for.

    metadata: the texts of the file's header; `json.loads(weights.metadata["config"])` is the run's config.
    """

    def __init__(self, path: PathLike):
        import numpy

        self.path = Path(path)
        with open(self.path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header: Dict[str, Any] = json.loads(file.read(length))
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.metadata: Dict[str, str] = header.pop("__metadata__", {})
        self._entries = header
        self._start = 8 + length
        self._numpy = numpy

    def __getitem__(self, name: str) -> "numpy.ndarray":
        entry = self._entries[name]
        start, end = entry["data_offsets"]
        kind = self._numpy.dtype(_TYPES[entry["dtype"]])
        count = (end - start) // kind.itemsize
        array = self._numpy.frombuffer(self._bytes, kind, count, self._start + start).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            return (array.astype("<u4") << 16).view("<f4")
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Weights({str(self.path)!r}, {len(self)} tensors)"


def weights(run: PathLike, out: PathLike = "results") -> Weights:
    """Opens the weights of a run as numpy arrays.

    run: a run's id or the beginning of it, a run folder, or a safetensors file.
    out: the results folder in which ids are looked up.
    """
    path = Path(run)
    if path.is_file():
        return Weights(path)
    folder = path if path.is_dir() else _folder(str(run), Path(out))
    for name in ("best.safetensors", "weights.safetensors"):
        if (folder / name).is_file():
            return Weights(folder / name)
    raise FileNotFoundError(f"{folder} has no weights: single runs keep them, the runs of a sweep do not")


def _folder(run: str, out: Path) -> Path:
    runs = out / "runs"
    found = sorted(folder for folder in runs.glob(f"{run}*") if folder.is_dir()) if run else []
    if len(found) == 1:
        return found[0]
    many = ", ".join(folder.name for folder in found[:4])
    raise FileNotFoundError(f"{runs} has {len(found)} runs whose id begins with {run!r}" + (f": {many}" if many else ""))
