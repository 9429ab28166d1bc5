"""Tests of the module against the program: `DSF_BIN=target/release/dsf python -m pytest src/python/tests`."""

import json
import subprocess
import sys

import numpy
import pytest

import dsf

SMOKE = ["mqar", "--preset", "smoke", "--threads", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    events = list(dsf.run([*SMOKE, "--out", out]))
    events += dsf.run([*SMOKE, "--mixer", "s6", "--out", out])
    return out, events


def test_events_are_those_of_the_guide_in_their_order(trained):
    _, events = trained
    names = [event["event"] for event in events]
    assert names[0] == "start" and names[-1] == "done" and "epoch" in names
    assert all(event["schema"] == 1 for event in events)


def test_a_refused_flag_is_an_error_with_its_fields():
    with pytest.raises(dsf.Error) as error:
        list(dsf.run(["mqar", "--mixer", "s7"]))
    assert (error.value.kind, error.value.flag, error.value.code) == ("refused", "--mixer", 2)
    with pytest.raises(TypeError):
        next(dsf.run("mqar"))


def test_a_run_that_is_closed_stops_and_goes_on(tmp_path):
    long = ["mqar", "--preset", "quick", "--threads", "1", "--mixer", "linear", "--out", tmp_path]
    events = dsf.run(long)
    start = next(events)
    events.close()
    assert not (tmp_path / "runs" / start["run"] / "result.json").exists()


def test_results_are_a_frame_with_text_ids(trained):
    out, events = trained
    for frame in ["pandas", "polars"]:
        pytest.importorskip(frame)
        runs = dsf.results(out, frame=frame)
        assert len(runs) == 2
        ids = {event["run"] for event in events if event["event"] == "done"}
        assert set(runs["run_id"]) == ids
        done = next(event for event in events if event["event"] == "done")
        accuracies = dict(zip(runs["run_id"], runs["accuracy"]))
        assert accuracies[done["run"]] == done["result"]["accuracy"]
        assert len(dsf.results(out, "lra", frame=frame)) == 0
        assert len(dsf.results(out / "mqar.csv", frame=frame)) == 2


def test_results_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results yet"):
        dsf.results(tmp_path)
    with pytest.raises(FileNotFoundError, match="no results folder"):
        dsf.results(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="pandas"):
        dsf.results(tmp_path, frame="arrow")


def test_weights_are_those_of_the_run(trained):
    out, events = trained
    run = events[0]["run"]
    weights = dsf.weights(run[:6], out)
    assert sum(array.size for array in weights.values()) == events[0]["parameters"]
    assert weights["embed.tok"].dtype == numpy.float32
    assert json.loads(weights.metadata["config"])["model"]["mixer"] == "softmax"
    assert len(dsf.weights(out / "runs" / run)) == len(weights)
    with pytest.raises(FileNotFoundError, match="0 runs"):
        dsf.weights("ffffffffffff", out)


@pytest.mark.parametrize("dtype, bits", [("F32", "<f4"), ("F64", "<f8"), ("F16", "<f2"), ("I64", "<i8")])
def test_numbers_of_every_width_are_read(tmp_path, dtype, bits):
    array = numpy.arange(6).reshape(2, 3).astype(bits)
    header = json.dumps({"x": {"dtype": dtype, "shape": [2, 3], "data_offsets": [0, array.nbytes]}}).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + array.tobytes())
    assert (dsf.weights(file)["x"] == array).all()


def test_bf16_is_read_as_f32(tmp_path):
    array = numpy.array([1.0, -2.5, 3e38], "<f4")
    header = json.dumps({"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + (array.view("<u4") >> 16).astype("<u2").tobytes())
    assert numpy.allclose(dsf.weights(file)["x"], array, rtol=2**-7)


# A diagonal system, one with biases, complex states, a delta rule, and one inside a block.
@pytest.mark.parametrize("mixer", ["linear", "s6", "normalized", "lru", "delta-net", "mamba", "mlstm"])
def test_the_system_of_a_mixer_gives_its_outputs(mixer, tmp_path):
    (system,) = dsf.system(mixer, d=8, n=4, seq_len=12, out=tmp_path)
    length, channels, states = system.b.shape
    assert length == 12 and system.Lambda.shape[:2] == (12, channels * states)
    assert numpy.abs(system.run() - system.y).max() <= 1e-10 * numpy.abs(system.y).max()


def test_the_system_of_a_run_is_the_run(trained):
    out, events = trained
    run = events[-1]["run"]
    systems = dsf.system(run, out=out)
    assert [system.mixer for system in systems] == ["s6", "s6"]
    assert len(dsf.system(run, out=out, layer=1)) == 1
    for system in systems:
        assert system.around is None and (system.input == system.u).all()
        assert numpy.abs(system.run() - system.y).max() <= 1e-10 * numpy.abs(system.y).max()


def test_a_mixer_without_a_finite_system_says_why(tmp_path):
    with pytest.raises(dsf.Error, match="softmax"):
        dsf.system("softmax", out=tmp_path)


def test_the_module_is_the_program():
    said = subprocess.run([sys.executable, "-m", "dsf", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("dsf ")
