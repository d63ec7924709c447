"""Split-federated learning in one file, to be read from top to bottom.

This is the explanation, not the product: no engines, no checks, no files. It uses torch, numpy and the digits
that ship with Cutwater. A test holds it to the same plan and the same weights as the real thing.

    python examples/naive.py
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


# 1. A model is a list of layers; a cut l leaves the first l of them on the client (Sec. III-B).
def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(32 * 2 * 2, 10)),
    )


# 2. What each cut costs for one sample: bits of w^C, FLOPs of either side, bits of smashed data (Sec. IV-A).
@dataclass
class Costs:
    bits: np.ndarray
    client_flops: np.ndarray
    server_flops: np.ndarray
    smashed: np.ndarray


def count(model: nn.Sequential, sample: torch.Tensor) -> Costs:
    bits, flops, smashed, value = [], [], [], sample[None]
    for layer in model:
        forward = 0
        for part in layer:
            value = part(value)
            if isinstance(part, nn.Conv2d | nn.Linear):
                positions = value.numel() // value.shape[1]
                forward += 2 * sum(p.numel() for p in part.parameters()) * positions  # a multiply-add is two
        bits.append(32 * sum(p.numel() for p in layer.parameters()))
        flops.append(3 * forward)  # backward costs about twice the forward pass
        smashed.append(32 * value.numel())
    client = np.cumsum(flops)
    return Costs(np.cumsum(bits), client, client[-1] - client, np.array(smashed))


# 3. A client, and how long its session takes (eqs. (17) and (19)).
@dataclass
class Client:
    name: str
    compute: float  # FLOPS
    rate: float  # bit/s
    work: float  # samples in a session
    samples: int  # n_k, its weight in the average


def without_server(costs: Costs, client: Client, cut: int) -> float:
    """The part of T_k that no share of the server can shorten."""
    whole = cut == len(costs.bits)
    moved = 2 * costs.bits[cut - 1] + (0 if whole else 2 * client.work * costs.smashed[cut - 1])
    return moved / client.rate + client.work * costs.client_flops[cut - 1] / client.compute


def latency(costs: Costs, client: Client, cut: int, share: float) -> float:
    on_server = client.work * costs.server_flops[cut - 1]
    return without_server(costs, client, cut) + (on_server / share if on_server else 0.0)


# 4. The plan. For a target T, a client that can't make it alone takes the cut that needs the least of the
#    server; the sum of needs falls as T grows, so the smallest T that the server can afford is the optimum.
def needs(costs: Costs, client: Client, target: float) -> tuple[float, int]:
    depth = len(costs.bits)
    if without_server(costs, client, depth) <= target:
        return 0.0, depth
    slack = {cut: target - without_server(costs, client, cut) for cut in range(1, depth)}
    options = [(client.work * costs.server_flops[cut - 1] / s, cut) for cut, s in slack.items() if s > 0]
    return min(options, default=(float("inf"), depth))


def plan(costs: Costs, clients: list[Client], server: float) -> tuple[float, list[tuple[float, int]]]:
    """(T, [(share, cut) of each client]), by bisection."""
    low, high = 0.0, max(without_server(costs, client, len(costs.bits)) for client in clients)
    for _ in range(200):
        target = (low + high) / 2
        enough = sum(needs(costs, client, target)[0] for client in clients) <= server
        low, high = (low, target) if enough else (target, high)
    return high, [needs(costs, client, high) for client in clients]


# 5. One mini-batch: the six stages of Phase 3.
def step(client, server, client_optimizer, server_optimizer, images, labels) -> float:
    smashed = client(images)  # (1) client-side forward
    received = smashed.detach().requires_grad_()  # (2) smashed data and labels go up
    loss = F.cross_entropy(server(received), labels)  # (3) server-side forward
    loss.backward()  # (4) server-side backward and update
    server_optimizer.step()
    gradient = received.grad  # (5) gradients come down
    smashed.backward(gradient)  # (6) client-side backward and update
    client_optimizer.step()
    for optimizer in (client_optimizer, server_optimizer):
        optimizer.zero_grad()
    return loss.item()


# 6. A client's session, and the weighted average that ends the round (eq. (2)).
def session(model: nn.Sequential, cut: int, batches, lr: float) -> dict[str, torch.Tensor]:
    model = copy.deepcopy(model).train()
    if cut == len(model):  # the whole model stays on the client: plain FedAvg
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for images, labels in batches:
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    else:
        client, server = model[:cut], model[cut:]  # they share the layers of the model
        optimizers = [torch.optim.SGD(half.parameters(), lr=lr) for half in (client, server)]
        for images, labels in batches:
            step(client, server, *optimizers, images, labels)
    return model.state_dict()


def average(states: list[dict[str, torch.Tensor]], weights: list[int]) -> dict[str, torch.Tensor]:
    total = sum(weights)
    return {
        name: sum(s[name].double() * w for s, w in zip(states, weights, strict=True)).div(total).float()
        for name in states[0]
    }


# 7. All of it, on real digits.
def main() -> None:
    from cutwater import DataSettings

    data, random = DataSettings(source="digits").load(), np.random.default_rng(0)
    clients = [
        Client(f"c{k}", compute=c * 1e9, rate=8e6, work=20 * 32, samples=200)
        for k, c in enumerate([0.05, 0.1, 0.5, 1.0, 2.0, 4.0], start=1)
    ]
    parts = np.array_split(random.permutation(len(data.train)), len(clients))
    test_images, test_labels = data.test.batch(np.arange(len(data.test)))
    model = make_model()
    costs = count(model, test_images[0][0])
    seconds, shares = plan(costs, clients, server=10e9)
    fedavg = max(latency(costs, client, len(model), 0.0) for client in clients)
    for client, (share, cut) in zip(clients, shares, strict=True):
        print(f"{client.name}: cut {cut} of {len(model)}, share {share / 1e9:.2f} GFLOPS")
    print(f"a round takes {seconds:.2f} s; with FedAvg it would take {fedavg:.2f} s")
    for number in range(1, 11):
        states = []
        for part, (_, cut) in zip(parts, shares, strict=True):
            draws = (random.choice(part, 32, replace=False) for _ in range(20))
            batches = [data.train.batch(draw) for draw in draws]
            states.append(session(model, cut, [(images[0], labels) for images, labels in batches], lr=0.1))
        model.load_state_dict(average(states, [client.samples for client in clients]))
        right = (model(test_images[0]).argmax(1) == test_labels).float().mean().item()
        print(f"round {number}: {right:.1%} right after {number * seconds:.1f} s")


if __name__ == "__main__":
    main()
