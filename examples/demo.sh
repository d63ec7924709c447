#!/usr/bin/env bash
# The product's main job from a model to a trained one, in under two minutes. Run it by `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-out/demo}
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n\033[1m%s\033[0m\n\n' "$1"; }

say "1. What does every cut of EfficientNetV2-M cost? (the paper's count and regression)"
cutwater profile efficientnet_v2_m --input 1x28x28 --classes 10 --count paper --out "$out/profile.json" \
  --plot "$out/profile.png"

say "2. The paper's ten clients: FedAvg, the paper's algorithm, the optimum"
cutwater compare examples/paper-ten.toml
cutwater plan examples/paper-ten.toml --out "$out/plan.json"

say "3. Ten unequal devices learn handwritten digits, each with its own cut"
cutwater train examples/digits.toml --run "$out/run"

say "4. The same bits as FedAvg?"
cutwater verify examples/digits.toml --rounds 2

say "5. A report to look at"
cutwater report "$out/run" --out "$out/report.html"
