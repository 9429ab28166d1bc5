"""Counts the instructions of the inner loops of our kernels in the machine code, and holds them to those in loops.csv.

    python3 cuda/loops.py          compares the loops of the kernels that were compiled last with cuda/loops.csv
    python3 cuda/loops.py --write  writes cuda/loops.csv anew

The inner loops of a kernel, which contain no other loop, are listed in the order of their places. Counts are per iteration of the machine code, in which the compiler may have unrolled iterations of the source.
CUOBJDUMP is the disassembler, `cuobjdump` by default.
"""

import collections
import concurrent.futures
import csv
import os
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("loops.csv")
# Classes of instructions, by the beginnings of their names; what no class has is counted in `all` alone.
CLASSES = {
    "tensor": ("HMMA", "IMMA", "HGMMA"),
    "float": ("FFMA", "FMUL", "FADD", "HFMA2", "HMUL2", "HADD2", "DFMA", "DMUL", "DADD"),
    "special": ("MUFU",),
    "convert": ("F2F", "F2FP", "F2I", "I2F"),
    "shared": ("LDS", "STS", "LDSM"),
    "global": ("LDG", "STG", "LDGSTS", "RED", "ATOM"),
    "local": ("LDL", "STL"),
    "barrier": ("BAR", "WARPSYNC", "DEPBAR", "LDGDEPBAR"),
}
HEAD = ["kernel", "loop", "all", *CLASSES]
# The GPU whose machine code is read.
ARCH = "sm_90"
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?([A-Z0-9_]+)([^;]*);")
TARGET = re.compile(r"0x([0-9a-f]+)\)?\s*$")
BARRIER = re.compile(r"\bB\d+\b")


class Instruction:
    """An instruction of a kernel: its address, name, operands, and whether a predicate may skip it."""

    def __init__(self, match):
        self.address, self.name, self.operands = int(match[1], 16), match[3], match[4]
        self.skipped = bool(match[2]) or self.name == "BRA" and re.search(r"\bU?P\d", self.operands) is not None
        target = TARGET.search(self.operands) if self.name in ("BRA", "BSSY") else None
        self.target = int(target[1], 16) if target else None


def functions(fatbin):
    """Yields compute capability, name and instructions of each kernel."""
    command = [os.environ.get("CUOBJDUMP", "cuobjdump"), "-sass", str(fatbin)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for part in re.split(r"(?m)^arch = ", text)[1:]:
        for function in part.split("Function : ")[1:]:
            name, *lines = function.splitlines()
            found = [Instruction(match) for match in map(INSTRUCTION.match, lines) if match]
            yield part.split()[0], name.strip(), found


def successors(instructions):
    """Indices of the instructions that may follow each one."""
    place = {instruction.address: i for i, instruction in enumerate(instructions)}
    # Threads that wait at a barrier go on where it was last set up to end.
    ends, after = {}, []
    for i, instruction in enumerate(instructions):
        jumps = set()
        if instruction.name == "BSSY":
            ends[BARRIER.search(instruction.operands)[0]] = place[instruction.target]
        if instruction.name == "BRA" and instruction.target in place:
            jumps = {place[instruction.target]}
        elif instruction.name == "BSYNC":
            jumps = {ends[BARRIER.search(instruction.operands)[0]]}
        goes_on = instruction.skipped or instruction.name not in ("BRA", "EXIT", "RET", "BRX")
        after.append(jumps | ({i + 1} if goes_on and i + 1 < len(instructions) else set()))
    return after


def inner_loops(instructions):
    """Yields the instructions of each loop that contains no other one, in the order of their places.

    A loop is a jump to an instruction that is on every way to the jump, with all that can reach the jump without it;
    jumps back from rare cases, which the compiler puts at the end of a kernel, are none.
    """
    after = successors(instructions)
    before = [[] for _ in after]
    for i, following in enumerate(after):
        for j in following:
            before[j].append(i)
    loops = []
    for i, following in enumerate(after):
        for head in following if instructions[i].name == "BRA" else ():
            if head < i and not reaches(after, i, head):
                body, open_ = {head, i}, [i]
                while open_:
                    for j in before[open_.pop()]:
                        if j not in body:
                            body.add(j)
                            open_.append(j)
                loops.append(body)
    for body in sorted(loops, key=min):
        if not any(other < body for other in loops):
            yield [instructions[i] for i in sorted(body)]


def reaches(after, end, without):
    """Whether the instruction `end` can be reached from the first one without the one at `without`."""
    seen, open_ = {0}, [0] if without else []
    while open_:
        for j in after[open_.pop()]:
            if j == end:
                return True
            if j not in seen and j != without:
                seen.add(j)
                open_.append(j)
    return False


def loops_of(fatbin):
    """Rows of the table for a fatbin, without NOP, which only fills places."""
    rows = []
    for arch, kernel, instructions in functions(fatbin):
        for loop, body in enumerate(inner_loops(instructions) if arch == ARCH else ()):
            names = [instruction.name for instruction in body if instruction.name != "NOP"]
            classes = collections.Counter(label for name in names for label, heads in CLASSES.items() if name in heads)
            rows.append([kernel, loop, len(names), *(classes[label] for label in CLASSES)])
    return rows


def built():
    """Fatbins of the last build."""
    folders = {fatbin.parent for fatbin in pathlib.Path("target").glob("*/build/dsf-gpu-*/out/*.fatbin")}
    if not folders:
        sys.exit("error: no kernels here; `make cuda-quick` or `make cuda` compiles them")
    return sorted(max(folders, key=lambda folder: folder.stat().st_mtime).glob("*.fatbin"))


def limit(name):
    """A number of the table `loops` in limits.toml."""
    text = TABLE.with_name("limits.toml").read_text().split("[loops]")[1]
    return float(re.search(rf"(?m)^{name} = ([0-9.]+)", text)[1])


def by_kernel(rows):
    """Counts of all inner loops of each kernel."""
    kernels = collections.defaultdict(list)
    for kernel, _, count, *_ in rows:
        kernels[kernel].append(int(count))
    return kernels


def differences(known, found, growth):
    """Yields a sentence about each kernel that is longer than in the table or not in it, and one for each shorter one,
    with whether it is a fault."""
    for kernel in sorted(known.keys() | found.keys()):
        before, now = known.get(kernel, []), found.get(kernel, [])
        if before == now:
            continue
        if not before or not now:
            yield f"{kernel} has {'an' if now else 'no'} inner loop, unlike in cuda/loops.csv", True
        elif len(before) != len(now):
            yield f"{kernel} has {len(now)} inner loops, not {len(before)}", True
        else:
            changed = [(i, *counts) for i, counts in enumerate(zip(before, now)) if counts[0] != counts[1]]
            said = ", ".join(f"loop {i} has {new} instructions, not {old}" for i, old, new in changed)
            yield f"{kernel}: {said}", any(new > old * (1 + growth) for _, old, new in changed)


def main():
    with concurrent.futures.ProcessPoolExecutor() as pool:
        rows = sorted(row for rows in pool.map(loops_of, built()) for row in rows)
    if not rows:
        sys.exit(f"error: the kernels that were compiled last have no machine code of {ARCH}; `make cuda-quick` has")
    if sys.argv[1:] == ["--write"]:
        with open(TABLE, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
        print(f"cuda/loops.csv: {len(rows)} inner loops")
        return
    where = subprocess.run(["bash", "cuda/toolkit.sh", "where"], check=True, capture_output=True, text=True).stdout
    version = subprocess.run([f"{where.strip()}/bin/nvcc", "--version"], check=True, capture_output=True, text=True)
    release = float(re.search(r"release ([0-9.]+)", version.stdout)[1])
    if release != limit("compiler"):
        print(f"skipped: cuda/loops.csv has the loops of CUDA {limit('compiler')}, and {release} compiles others")
        return
    with open(TABLE, newline="") as file:
        known = by_kernel(list(csv.reader(file))[1:])
    found = list(differences(known, by_kernel(rows), limit("growth")))
    for said, fault in found:
        print(f"{'error' if fault else 'note'}: {said}")
    if any(fault for _, fault in found):
        sys.exit("error: inner loops have changed; if they are meant to, `make cuda-loops WRITE=--write` records them")
    print(f"{len(rows)} inner loops are as long as in cuda/loops.csv or shorter")


if __name__ == "__main__":
    main()
