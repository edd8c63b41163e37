"""Leases between real processes: one holder at a time, taken over when the holder is gone, lost when taken over."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from vitlab.training import lease as leases
from vitlab.training.lease import Held, LeaseLost, Watch, hold, hold_in_turn, path_of, read_claim, watch_until_expired

HOLDER = """
import sys, time
from vitlab.training.lease import hold
with hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a lease of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def of_another_host(folder):
    """The lease that counts, as if a process of another machine had written it."""
    claim = read_claim(folder)
    path = path_of(folder, claim.generation)
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": "another", "host": "elsewhere"}))


def test_a_folder_has_one_holder(tmp_path, holder):
    assert Watch().look(tmp_path)[0] == "held"
    with pytest.raises(Held, match=f"another vitlab is running there \\(.*process {holder.pid}\\)"), hold(tmp_path):
        pass


def test_a_killed_holder_is_known_at_once_on_its_own_machine(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with hold(tmp_path) as lease:
        assert lease.claim.generation == 2


def test_a_lease_of_another_host_expires_by_the_readers_clock(tmp_path, holder, monkeypatch):
    of_another_host(tmp_path)
    monkeypatch.setattr(leases, "EXPIRY", 0.3)
    watch = Watch()
    assert watch.look(tmp_path)[0] == "held"
    time.sleep(0.4)
    standing, claim = watch.look(tmp_path)
    assert standing == "expired"
    with hold(tmp_path, expired=claim.pulse) as lease:
        assert lease.claim.generation == claim.generation + 1
        with pytest.raises(Held), hold(tmp_path, expired=claim.pulse):
            pass


def test_training_alone_waits_for_another_host_to_beat(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(leases, "EXPIRY", 0.3)
    assert watch_until_expired(tmp_path / "free") is None
    of_another_host(tmp_path)
    assert watch_until_expired(tmp_path) == read_claim(tmp_path).pulse


def test_a_holder_beats_and_notices_that_it_has_lost_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.05)
    with hold(tmp_path) as lease:
        lease.progress = {"step": 3, "steps": 7}
        end = time.monotonic() + 10
        while read_claim(tmp_path).progress != {"step": 3, "steps": 7}:
            assert time.monotonic() < end
            time.sleep(0.02)
        of_another_host(tmp_path)
        leases.create_json(path_of(tmp_path, 2), {**vars(read_claim(tmp_path)), "generation": 2, "token": "other"})
        monkeypatch.setattr(leases, "EXPIRY", 0.0)
        lease.confirmed = -1.0
        with pytest.raises(LeaseLost):
            lease.check()
    assert read_claim(tmp_path).token == "other", "the holder that lost it leaves the new one alone"


def test_a_lease_that_beats_again_after_it_was_seen_to_expire_is_held(tmp_path, holder, monkeypatch):
    of_another_host(tmp_path)
    seen = read_claim(tmp_path).pulse
    path = path_of(tmp_path, 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "beat": 7}))
    with pytest.raises(Held), hold(tmp_path, expired=seen):
        pass


def test_a_process_with_the_number_of_a_holder_that_has_ended_is_not_the_holder(tmp_path, holder):
    path = path_of(tmp_path, 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getpid()}))
    assert Watch().look(tmp_path)[0] == "expired"


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_a_lease_that_cannot_be_read_is_held_until_it_has_been_silent(tmp_path, monkeypatch, text):
    monkeypatch.setattr(leases, "EXPIRY", 0.2)
    with hold(tmp_path, keep=False) as lease:
        path_of(tmp_path, 1).write_text(text)
        assert not lease.is_lost(), "nobody has taken it over"
        watch = Watch()
        assert watch.look(tmp_path)[0] == "held"
        time.sleep(0.3)
        standing, claim = watch.look(tmp_path)
        assert standing == "expired"
        with hold(tmp_path, expired=claim.pulse):
            assert lease.is_lost()


def test_a_reader_that_was_suspended_has_not_listened(tmp_path, holder, monkeypatch):
    of_another_host(tmp_path)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    watch = Watch()
    watch.look(tmp_path)
    for now[0], standing in ((1000, "held"), *((1000 + 10 * i, "held") for i in range(1, 5)), (1051, "expired")):
        assert watch.look(tmp_path)[0] == standing, now


def test_a_holder_that_slept_until_its_successor_had_finished_has_lost(tmp_path, holder):
    """The successor has taken all claims away."""
    of_another_host(tmp_path)
    with hold(tmp_path, expired=read_claim(tmp_path).pulse) as late:
        with hold(tmp_path, expired=read_claim(tmp_path).pulse):
            (tmp_path / "result.json").touch()
        assert os.listdir(tmp_path) == ["result.json"]
        with pytest.raises(LeaseLost):
            late.confirm()
    assert os.listdir(tmp_path) == ["result.json"], "and it writes no claim any more"


def test_a_released_lease_is_free_and_a_finished_run_keeps_none(tmp_path):
    with hold(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists(), "nothing has begun there"
    (tmp_path / "config.yaml").touch()
    with hold(tmp_path):
        pass
    assert Watch().look(tmp_path)[0] == "free"
    with hold(tmp_path) as lease:
        assert lease.claim.generation == 2
        (tmp_path / "result.json").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "result.json"}


def enter(folder, taken):
    with hold_in_turn(folder):
        path = folder / "inside"
        path.touch(exist_ok=False)
        time.sleep(0.01)
        path.unlink()
        taken.value += 1


def test_only_one_of_many_is_inside_at_a_time(tmp_path):
    context = multiprocessing.get_context("fork")
    taken = context.Value("i", 0, lock=False)
    processes = [context.Process(target=enter, args=(tmp_path, taken)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert taken.value == 6
    assert os.listdir(tmp_path) == []
