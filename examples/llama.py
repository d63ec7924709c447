"""Which device can hold what of a Llama with 7 billion parameters, and what a round of LoRA costs.

Nothing is allocated: the model is on torch's meta device, its profile is counted and a round is planned in a
minute, in less memory than one of its layers would take.

python examples/llama.py
"""

import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import cutwater

TOKENS = 512
GIB = 8 * 2**30  # bits


def llama(layers: int = 32, width: int = 4096, inner: int = 11008, heads: int = 32, words: int = 32000):
    """Llama-2-7B by default, in bf16, with adapters of rank 8 at q and v; none of its numbers exist."""
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        vocab_size=words,
        use_cache=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        return get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))


def clients(memories: dict[str, float], holds: dict[str, int]) -> list[cutwater.Client]:
    """Devices by their memory in GiB, and the layers whose frozen weights they have from earlier rounds."""
    compute = {"phone": 2e12, "laptop": 8e12, "workstation": 40e12}
    return [
        cutwater.Client(
            name=name,
            compute=compute[name],
            rate=100e6,
            samples=64,
            memory=gib * GIB,
            holds=holds.get(name, 0),
        )
        for name, gib in memories.items()
    ]


def show(plan: cutwater.Plan) -> None:
    for client in plan.clients:
        moved = f"{client.bytes_up / 1e6:,.0f} MB up and {client.bytes_down / 1e6:,.0f} MB down"
        print(f"  {client.name}: {client.cut} layers, {client.latency / 60:,.0f} minutes, {moved}")


def main(tokens: int = TOKENS, batch: int = 1, **sizes: int) -> cutwater.Plan:
    """Print what devices can hold and what rounds cost; the plan of a later round."""
    began = time.monotonic()
    model = llama(**sizes)
    example = {"input_ids": torch.zeros(batch, tokens, dtype=torch.long, device="meta")}
    profile = cutwater.profile_layered(cutwater.layered(model, example), example, optimizer="adamw")
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    print(
        f"{sum(one.numel() for one in model.parameters()):,} parameters, of which {trained:,} are trained, "
        f"in {len(profile)} layers"
    )
    devices = {"phone": 4.0, "laptop": 12.0, "workstation": 24.0}
    for name, gib in devices.items():
        held = [cut.cut for cut in profile.cuts if cut.client_memory_bits <= gib * GIB]
        print(f"a {name} with {gib:g} GiB can hold {len(held)} of {len(profile)} layers")
    session = cutwater.Session(epochs=1, batch_size=batch)
    holds: dict[str, int] = {}
    for which in ("the first round, with the frozen weights", "a later round"):
        problem = cutwater.Problem(profile, clients(devices, holds), cutwater.Server(200e12), session)
        plan = cutwater.solve(problem)
        print(f"{which}:")
        show(plan)
        holds = {client.name: client.cut for client in plan.clients}
    print(f"planned in {time.monotonic() - began:.0f} s")
    return plan


if __name__ == "__main__":
    main()
