"""Mixers as linear time-varying systems."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Union

from ._arrays import Weights
from ._program import Error, PathLike, run as call

if TYPE_CHECKING:
    from numpy import ndarray


@dataclass(frozen=True)
class System:
    """A layer's mixer along one input of L tokens: h_i = Λ_i h_{i-1} + B_i u_i, y_i = C_i h_i + D_i u_i, from h = 0.

    The state has E channels of m numbers, N = E m. The factors have L E m numbers; `Lambda`, `B`, `C`, `D` are the dense
    matrices, made when they are asked for. A mixer with biases has one more input, which is always 1.
    """

    name: str
    mixer: str
    #: Input of the system, (L, width).
    input: "ndarray"
    #: Input of the mixer, (L, d). It is `input` unless `around` says what the mixer does before the system.
    u: "ndarray"
    #: Output of the mixer by its forward pass, (L, d).
    y: "ndarray"
    #: What surrounds the system in the mixer; None if the system is the whole mixer.
    around: Optional[str]
    #: Diagonal of Λ_i, (L, E, m). Channels c and E/2 + c are real and imaginary parts if `lambda_im` is there.
    lambda_diagonal: "ndarray"
    #: Input weights of the states, (L, E, m).
    b: "ndarray"
    #: Output weights of the states, (L, E, m).
    c: "ndarray"
    #: Imaginary part of λ, (L, E/2, m), of systems with complex states.
    lambda_im: Optional["ndarray"] = None
    #: Λ_i = diag(λ_i) + a_i b_iᵀ in each channel, (L, E, m), of delta rules.
    rank_one_a: Optional["ndarray"] = None
    rank_one_b: Optional["ndarray"] = None
    #: The factor of `b` that also determines Λ_i, such as Δ_i, (L, E).
    gate: Optional["ndarray"] = field(default=None, repr=False)
    #: Value map, (E, inputs); the identity if None.
    value: Optional["ndarray"] = field(default=None, repr=False)
    #: Factors of the value that bypass the state, (L, E).
    skip: Optional["ndarray"] = field(default=None, repr=False)
    #: Output map, (d, E); the identity if None.
    output: Optional["ndarray"] = field(default=None, repr=False)
    #: Map from input to output that bypasses the channels, (d, inputs).
    direct: Optional["ndarray"] = field(default=None, repr=False)
    #: Bias of the output, (d).
    offset: Optional["ndarray"] = field(default=None, repr=False)

    @property
    def Lambda(self) -> "ndarray":
        """Λ_i: the diagonals, (L, N), or the dense matrices, (L, N, N), if they are not diagonal."""
        import numpy

        length, channels, states = self.lambda_diagonal.shape
        width = channels * states
        diagonal = self.lambda_diagonal.reshape(length, width)
        if self.lambda_im is None and self.rank_one_a is None:
            return diagonal
        dense = numpy.zeros((length, width, width), diagonal.dtype)
        every = numpy.arange(width)
        dense[:, every, every] = diagonal
        if self.lambda_im is not None:
            half = numpy.arange(width // 2)
            flat = self.lambda_im.reshape(length, width // 2)
            dense[:, half, half + width // 2] -= flat
            dense[:, half + width // 2, half] += flat
        if self.rank_one_a is not None and self.rank_one_b is not None:
            for channel in range(channels):
                part = slice(channel * states, (channel + 1) * states)
                dense[:, part, part] += self.rank_one_a[:, channel, :, None] * self.rank_one_b[:, channel, None, :]
        return dense

    @property
    def B(self) -> "ndarray":
        """B_i, (L, N, inputs)."""
        length, channels, states = self.b.shape
        b = self.b[:, :, :, None] * self._value()[None, :, None, :]
        return b.reshape(length, channels * states, -1)

    @property
    def C(self) -> "ndarray":
        """C_i, (L, d, N)."""
        import numpy

        length, channels, states = self.c.shape
        c = self.c[:, None] * numpy.eye(channels)[None, :, :, None]
        return self._behind(c.reshape(length, channels, channels * states))

    @property
    def D(self) -> "ndarray":
        """D_i, (L, d, inputs)."""
        import numpy

        length, channels, _ = self.b.shape
        value = self._value()
        skip = numpy.zeros((length, channels)) if self.skip is None else self.skip
        d = self._behind(skip[:, :, None] * value[None])
        if self.direct is not None:
            d = d + self.direct
        if self.offset is not None:
            d = d.copy()
            d[:, :, -1] += self.offset
        return d

    def run(self, input: Optional["ndarray"] = None) -> "ndarray":
        """y, (L, d), by the recurrence over the dense matrices; of another input of the same length if one is given.

        The matrices stay those of the original input: with another one, the result is the linear map of the system and
        not the output of the mixer.
        """
        import numpy

        u = self.input if input is None else input
        matrices, b, c, d = self.Lambda, self.B, self.C, self.D
        if b.shape[2] == u.shape[1] + 1:
            u = numpy.concatenate([u, numpy.ones((len(u), 1), u.dtype)], 1)
        h = numpy.zeros(b.shape[1], u.dtype)
        y = []
        for i, token in enumerate(u):
            h = (matrices[i] * h if matrices.ndim == 2 else matrices[i] @ h) + b[i] @ token
            y.append(c[i] @ h + d[i] @ token)
        return numpy.stack(y)

    def _value(self) -> "ndarray":
        import numpy

        return numpy.eye(self.b.shape[1]) if self.value is None else self.value

    def _behind(self, x: "ndarray") -> "ndarray":
        return x if self.output is None else self.output @ x


def system(
    subject: PathLike,
    *,
    d: Optional[int] = None,
    n: Optional[int] = None,
    heads: Optional[int] = None,
    layer: Optional[int] = None,
    seq_len: Optional[int] = None,
    text: Optional[str] = None,
    input: Optional[str] = None,
    options: Union[List[str], None] = None,
    seed: Optional[int] = None,
    precision: str = "f64",
    out: PathLike = "results",
) -> List[System]:
    """The systems of a trained run or of a fresh mixer, one a layer, along the input of `dsf inspect`.

    subject: a run's id, its folder or its weights; or the name of a mixer, `NAME` or `NAME/VARIANT`, with fresh weights
        of width d, state expansion n and so many heads.
    layer: only this one, counted from 0.
    input: "task" (an example of the run's task) or "random"; text: a text for a language model.

    Raises `Error` if the mixer is no finite system, with the reason, or if the program refuses the arguments.
    """
    flags = {"d": d, "n": n, "heads": heads, "layer": layer, "seq-len": seq_len, "text": text, "input": input, "seed": seed}
    word = str(subject)
    is_run = Path(word).exists() or (Path(out) / "runs" / word).is_dir()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "systems.safetensors"
        words = ["inspect", *([word] if is_run else ["--mixer", word]), "--matrices", str(file), "--precision", precision]
        words += ["--out", str(out)]
        for name, given in flags.items():
            words += [] if given is None else [f"--{name}", str(given)]
        for option in options or []:
            words += ["--option", option]
        for _ in call(words):
            pass
        return _read(Weights(file))


def _read(file: Weights) -> List[System]:
    systems = []
    for i, about in enumerate(json.loads(file.metadata["subjects"])):
        if about["without_system"] is not None:
            raise Error(f"{about['name']} is no finite system: {about['without_system']}", 0)
        prefix = f"{i}."
        # Copies, since the file goes.
        arrays = {name[len(prefix):]: file[name].copy() for name in file if name.startswith(prefix)}
        arrays["lambda_diagonal"] = arrays.pop("lambda")
        systems.append(System(about["name"], about["mixer"], around=about["around"], **arrays))
    return systems
