"""Against Hugging Face's Trainer: the same loss curve from the same batches on one client."""

from dataclasses import replace

import pytest
import tiny_bert
import torch

import cutwater
from cutwater.train.session import Task, run_both_sides

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
STEPS = 50


def recipe():
    return {"learning_rate": 5e-3, "weight_decay": 0.01, "max_grad_norm": 0.5, "warmup_steps": 10}


def as_the_trainer_does(parameters, lr):
    """AdamW without decay for biases and norms, which are the parameters of one dimension."""
    matrices, vectors = ([one for one in parameters if (one.ndim > 1) is many] for many in (True, False))
    groups = [{"params": matrices, "weight_decay": recipe()["weight_decay"]}, {"params": vectors}]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.0)


def trainers_losses(model, batches, folder):
    """The loss of every step, of a Trainer that is handed these batches."""

    class Handed(transformers.Trainer):
        def get_train_dataloader(self):
            return batches

    seen = []

    class Noting(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                seen.append(logs["loss"])

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=6,
        lr_scheduler_type="linear",
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **recipe(),
    )
    Handed(model, arguments, train_dataset=batches, callbacks=[Noting()]).train()
    return seen


def test_fifty_steps_have_the_losses_of_the_trainer(tmp_path):
    torch.manual_seed(0)
    model = tiny_bert.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = tiny_bert.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    theirs.load_state_dict(model.state_dict())
    study = cutwater.Study.of(
        model,
        cutwater.from_datasets(tiny_bert.samples(30), collate="pad"),
        [cutwater.Client(name="c0", compute=1e9, rate=1e6, samples=30)],
        cutwater.Server(1e10),
        cutwater.Session(epochs=STEPS // 5, batch_size=6, micro_batches=1),
        train=cutwater.TrainSettings(
            rounds=1,
            optimizer=as_the_trainer_does,
            lr=recipe()["learning_rate"],
            clip_norm=recipe()["max_grad_norm"],
            schedule="linear",
            schedule_by="step",
            warmup=recipe()["warmup_steps"],
        ),
    )
    task = Task(client="c0", round=1, cut=3, seed=1, lr=study.train.lr, samples=30)
    batches = [{**study.data.called(batch.inputs), "labels": batch.labels} for batch in study.batches(task)]
    losses = []
    job = study.job()

    def noted(output, labels):
        value = study.loss(output, labels)
        losses.append(float(value.detach()))
        return value

    run_both_sides(replace(job, loss=noted), task, study.initial)
    assert losses == pytest.approx(trainers_losses(theirs, batches, tmp_path), abs=1e-5)
    assert losses[-1] < losses[0] - 0.1
