"""Which GPUs a run gets, and which process of srun this is."""

from vitlab import hardware


def test_gpus_are_shared_round_robin_one_or_several_a_run(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus = hardware.list_gpus(3)
    assert [hardware.share_gpus(gpus, place, 1) for place in range(4)] == ["0", "1", "2", "0"]
    assert [hardware.share_gpus(gpus, place, 2) for place in range(3)] == ["0,1", "2,0", "1,2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.list_gpus(0) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert [hardware.share_gpus(hardware.list_gpus(2), place, 1) for place in range(3)] == ["2", "3", "2"]


def test_srun_says_which_of_its_processes_this_is(monkeypatch):
    for name, value in {"STEP_ID": 0, "PROCID": 3, "STEP_NUM_TASKS": 4, "LOCALID": 1, "NODEID": 2}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert hardware.find_launched() == hardware.Launched("srun", 3, 4, 1, 2)
