"""Train and compare sequence mixers with the program ``dsf``.

``run`` calls the program and yields its events, ``results`` reads the runs of a folder as a frame, ``weights`` opens
the parameters of a run, and ``system`` returns a mixer or a run as a linear time-varying system,

    h_i = Λ_i h_{i-1} + B_i u_i,  y_i = C_i h_i + D_i u_i.
"""

from ._arrays import Weights, weights
from ._frames import results
from ._program import Error, find, run
from ._systems import System, system

__all__ = ["Error", "System", "Weights", "find", "results", "run", "system", "weights"]
