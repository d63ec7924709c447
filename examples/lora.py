"""Fine-tuning by LoRA, as peft has it: only adapters travel after the first round.

The mean of A and the mean of B of several clients is not the mean of their products B·A. With ``ffa`` all
clients keep the same A, which is frozen, so that the mean of B is exact (FFA-LoRA), at half the traffic.

python examples/lora.py
"""

import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import cutwater

WORDS, LENGTH = 40, 12


def base() -> GPT2LMHeadModel:
    """Stands for a pretrained model, which GPT2LMHeadModel.from_pretrained would give."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=4, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


def counting(count: int, seed: int) -> list[dict]:
    """Texts that count up in steps of two or three."""
    random = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, WORDS, (count, 1), generator=random)
    steps = torch.randint(2, 4, (count, 1), generator=random)
    ids = (starts + steps * torch.arange(LENGTH)) % WORDS
    return [{"input_ids": one, "labels": one} for one in ids]


def main(rounds: int = 3, ffa: bool = False) -> cutwater.TrainedRun:
    config = LoraConfig(
        r=8, target_modules=["c_attn", "c_fc"], layers_to_transform=[2, 3], fan_in_fan_out=True
    )
    model = get_peft_model(base(), config)
    if ffa:
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                parameter.requires_grad = False
    study = cutwater.Study.of(
        model,
        cutwater.from_datasets(counting(120, 0), counting(40, 1), name="counting"),
        [cutwater.Client(name=f"laptop-{k}", compute=1e9 * k, rate=10e6, samples=40) for k in (1, 2, 3)],
        cutwater.Server(20e9),
        cutwater.Session(epochs=2, batch_size=8),
        train=cutwater.TrainSettings(rounds=rounds, optimizer="adamw", lr=1e-2, clip_norm=1.0),
    )
    trained = 4 * sum(one.numel() for one in model.parameters() if one.requires_grad)
    print(f"{trained:,} bytes of {4 * sum(one.numel() for one in model.parameters()):,} are trained")

    def show(round_: cutwater.Round) -> None:
        record = round_.record
        moved = f"{record.bytes_up:,} bytes up, {record.bytes_down:,} down"
        print(f"round {record.round}: test loss {record.test_loss:.3f}, {moved}")

    run = cutwater.run(study, callbacks=[show])
    with tempfile.TemporaryDirectory() as folder:
        cutwater.export(run.progress.weights, folder, study=study, adapter=True)
        print(f"peft reads it: {type(PeftModel.from_pretrained(base(), folder)).__name__}")
    return run


if __name__ == "__main__":
    main(ffa="--ffa" in sys.argv)
