"""Scores of a deployed run are those of a run in process, bit for bit."""

from collecting import run
from flower_cases import grid_of, served, settings, write_four

from cutwater.flower.shared_study import study_for
from cutwater.runs.checkpoint import load_run
from cutwater.runs.metrics import read
from cutwater.train.aggregate import weights_sha256

METRICS = """
import torch

def sureness(outputs, labels):
    return outputs.softmax(dim=1).amax(dim=1).mean()

class Median:
    def reset(self):
        self.seen = []

    def update(self, outputs, labels):
        self.seen.append(outputs.amax(dim=1))

    def compute(self):
        return torch.cat(self.seen).median()

def probed(model):
    assert not model.training and not torch.is_grad_enabled()
    outputs = model(torch.rand(5, 1, 8, 8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    return {"probe": outputs.std(), "norm": float(outputs.norm())}
"""
MORE = """
metrics = ["deployed_metrics:sureness", "deployed_metrics:Median"]
evaluate = "deployed_metrics:probed"
keep_best = "min probe"
patience = 1
"""


def test_metrics_local_tests_and_the_best_model_are_those_of_a_run_in_process(tmp_path):
    (tmp_path / "deployed_metrics.py").write_text(METRICS)
    path = write_four(tmp_path, rounds=4, more=MORE)
    text = path.read_text().replace("min_cut = 2\nforbidden = [6]\n", "")
    path.write_text(text.replace('partition = "iid"', 'partition = "iid"\nlocal_test = 0.2'))
    given = settings(path, planner="fedavg", run_dir=str(tmp_path / "run"))
    said = []
    deployed = [one.record for one in served(grid_of(given), "1", given, say=said.append)]
    here = [one.record for one in run(study_for(given), workers=2)]
    assert [one.weights_sha256 for one in deployed] == [one.weights_sha256 for one in here]
    assert [one.scores for one in deployed] == [one.scores for one in here]
    assert [one.local_tests for one in deployed] == [one.local_tests for one in here]
    assert [(one.best, one.stopped) for one in deployed] == [(one.best, one.stopped) for one in here]
    assert deployed[-1].scores.keys() == {"accuracy", "test_loss", "sureness", "Median", "probe", "norm"}
    best = load_run(tmp_path / "run", best=True)
    assert (
        weights_sha256(best.weights)
        == read(tmp_path / "run" / "metrics.jsonl")[best.round - 1].weights_sha256
    )
    assert deployed[-1].stopped is None or said[-1] == deployed[-1].stopped
    assert any("held back by the clients for local tests" in one for one in said)
