"""Results as a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional

from ._program import PathLike


def results(path: PathLike = "results", task: Optional[str] = None, *, frame: Optional[str] = None) -> Any:
    """Reads the runs of a results folder, or of one summary file, as a frame with one row per run.

    path: a results folder, or a CSV file such as `results/survey.csv`.
    task: only this task, such as "mqar".
    frame: "pandas" or "polars"; whichever is installed, pandas first, if it is left out.

    `dsf report --columns` explains the columns. `run_id` is text. Columns that only some tasks have are missing values
    in the rows of the others.
    """
    library = _library(frame)
    path = Path(path)
    files = [path] if path.is_file() else _summaries(path)
    if library.__name__ == "pandas":
        frames = [library.read_csv(file, dtype={"run_id": str}, float_precision="round_trip") for file in files]
        runs = library.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
        return runs if task is None else runs[runs.task == task].reset_index(drop=True)
    frames = [library.read_csv(file, schema_overrides={"run_id": library.String}, infer_schema_length=None) for file in files]
    runs = library.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]
    return runs if task is None else runs.filter(library.col("task") == task)


def _summaries(folder: Path) -> List[Path]:
    """The summaries of a results folder: one per task that has runs, with the columns `schema` and `run_id`."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no results folder and no CSV file")
    files = [file for file in sorted(folder.glob("*.csv")) if _is_summary(file)]
    if not files:
        raise FileNotFoundError(f"{folder} has no results yet: `dsf mqar` writes {folder}/mqar.csv")
    return files


def _is_summary(file: Path) -> bool:
    with open(file, encoding="utf-8") as lines:
        return lines.readline().startswith("schema,run_id,")


def _library(name: Optional[str]) -> Any:
    if name not in (None, "pandas", "polars"):
        raise ValueError(f'frame is "pandas" or "polars", not {name!r}')
    if name != "polars":
        try:
            import pandas

            return pandas
        except ImportError:
            if name == "pandas":
                raise
    try:
        import polars

        return polars
    except ImportError:
        if name == "polars":
            raise
    raise ImportError("results needs pandas or polars: pip install pandas")
