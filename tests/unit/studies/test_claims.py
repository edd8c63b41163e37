"""Claims between real processes: one owner at a time, taken over when the owner is gone, lost when taken over."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from vitlab.studies import claims
from vitlab.studies.claims import ClaimLost, Held, hold, path_of, read_claim

OWNER = """
import sys, time
from vitlab.studies.claims import hold
with hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """A process that has claimed tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def change(folder, **changes):
    """Change what the claim says, such as the name of its host."""
    path = path_of(folder, read_claim(folder).number)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def age(folder, seconds):
    path = path_of(folder, read_claim(folder).number)
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_folder_has_one_owner(tmp_path, owner):
    assert not read_claim(tmp_path).is_dead
    with pytest.raises(Held, match=f"another vitlab is running there \\(.*process {owner.pid}\\)"), hold(tmp_path):
        pass


def test_a_killed_owner_is_known_at_once_on_its_own_host(tmp_path, owner):
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with hold(tmp_path) as held:
        assert held.number == 2
    assert os.listdir(tmp_path) == []


def test_an_owner_elsewhere_is_dead_when_it_was_seen_untouched_for_a_minute_by_ones_own_clock(
    tmp_path, owner, monkeypatch, capsys
):
    """Clocks of hosts differ: the time of the claim alone says nothing."""
    clock, sleep = [1000.0], time.sleep
    monkeypatch.setattr(claims.time, "monotonic", lambda: clock[0])
    change(tmp_path, host="elsewhere")
    age(tmp_path, 10_000)
    assert not read_claim(tmp_path).is_dead
    clock[0] += 50
    assert (read_claim(tmp_path).is_dead, read_claim(tmp_path).is_silent) == (False, True)
    os.utime(path_of(tmp_path, 1))
    assert (read_claim(tmp_path).is_dead, read_claim(tmp_path).is_silent) == (False, False), "it was touched"
    clock[0] += 50
    assert not read_claim(tmp_path).is_dead
    monkeypatch.setattr(claims.time, "sleep", lambda seconds: os.utime(path_of(tmp_path, 1)) or sleep(0.01))
    with pytest.raises(Held), hold(tmp_path):  # it gives a sign of life
        pass
    assert not read_claim(tmp_path).is_dead
    monkeypatch.setattr(claims.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + 5))
    with hold(tmp_path) as held:
        assert held.number == 2
    assert "waiting for elsewhere, process" in capsys.readouterr().err


def test_an_owner_touches_its_claim_and_notices_that_it_was_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "HEARTBEAT", 0.05)
    with hold(tmp_path) as held:
        age(tmp_path, 500)
        end = time.monotonic() + 10
        while read_claim(tmp_path).age > 60:
            assert time.monotonic() < end
            time.sleep(0.02)
        held.check()
        path_of(tmp_path, 2).write_text(json.dumps({"host": "e", "pid": 1, "started": ""}))
        with pytest.raises(ClaimLost, match="another vitlab has taken it over"):
            held.check()
    assert read_claim(tmp_path).owner.host == "e", "the owner that lost it leaves the new one alone"


def test_an_owner_that_slept_until_its_successor_had_finished_has_lost(tmp_path):
    """The successor has removed all claims."""
    with hold(tmp_path) as late:
        path_of(tmp_path, 1).unlink()
        with pytest.raises(ClaimLost):
            late.check()
        successor = path_of(tmp_path, 1)  # of a later run there
        successor.write_text(json.dumps({"host": "e", "pid": 1, "started": ""}))
        with pytest.raises(ClaimLost):
            late.check()
    assert successor.exists()


def test_a_folder_that_is_given_back_has_no_claim_and_a_new_empty_one_is_removed(tmp_path):
    with hold(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "config.yaml").touch()
    with hold(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["config.yaml"]


def enter(folder, taken):
    with hold(folder, wait=True):
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
