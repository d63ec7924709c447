"""The models that are checked: tiny configurations of other libraries' classes, with random weights.

Nothing is downloaded. Each builder imports its library itself, so that the list can be read without any.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.coverage.case import Case, Inputs

Options = Mapping[str, Any]


def all_cases() -> list[Case]:
    """Every model, library by library."""
    return [
        *_transformers(),
        *_peft(),
        *_torchvision(),
        *_timm(),
        *_smp(),
        *_monai(),
        *_diffusers(),
        *_vit_pytorch(),
        *_x_transformers(),
        *_others(),
    ]


def _make(path: str, *args: Any, **options: Any) -> nn.Module:
    """``package.module:Class`` called with the arguments."""
    module, _, name = path.partition(":")
    made: nn.Module = attrgetter(name)(importlib.import_module(module))(*args, **options)
    return made


# Inputs


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(3, 99, (batch, length))


def _tokens(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_ids": _ids(batch, length)}


def _text(batch: int, length: int) -> dict[str, Tensor]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, -2:] = 0
    return {"input_ids": _ids(batch, length), "attention_mask": mask}


def _text_pair(batch: int, length: int) -> dict[str, Tensor]:
    return {**_text(batch, length), "decoder_input_ids": _ids(batch, length - 3)}


def _pixels(batch: int, size: int) -> dict[str, Tensor]:
    return {"pixel_values": _picture(batch, size)}


def _picture(batch: int, size: int, channels: int = 3) -> Tensor:
    return torch.randn(batch, channels, size, size)


def _volume(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 1, size, size, size)


def _grey(batch: int, size: int) -> Tensor:
    return _picture(batch, size, 1)


def _captioned(batch: int, length: int) -> dict[str, Tensor]:
    return {**_text(batch, length), **_pixels(batch, 32)}


def _wave(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(batch, length)}


def _video(batch: int, size: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, 4, 3, size, size)}


def _series(batch: int, length: int) -> dict[str, Tensor]:
    return {"past_values": torch.randn(batch, length, 3)}


def _vectors(batch: int, size: int) -> Tensor:
    return torch.randn(batch, size)


def _features(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, 16)


def _spectrum(batch: int, length: int) -> dict[str, Tensor]:
    return {"input_features": torch.randn(batch, 16, length), "decoder_input_ids": _ids(batch, 7)}


# transformers

TEXT: Options = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED: Options = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS: Options = {
    **GROUPED,
    "intermediate_size": 32,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
PICTURE: Options = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}
STAGES: Options = {"image_size": 64, "embed_dim": 16, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 2, 4]}
CONVS: Options = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 24], "depths": [1, 1, 2, 1]}
PAIR: Options = {
    **{key: TEXT[key] for key in ("vocab_size", "max_position_embeddings", "pad_token_id")},
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "decoder_start_token_id": 2,
}
T5: Options = {
    **{key: TEXT[key] for key in ("vocab_size", "pad_token_id")},
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 3,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
SOUND: Options = {
    **{key: PICTURE[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")},
    "intermediate_size": 37,
    "vocab_size": 32,
    "conv_dim": [16, 16, 16],
    "conv_stride": [4, 4, 2],
    "conv_kernel": [8, 4, 2],
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "num_feat_extract_layers": 3,
}


def _hf_model(name: str, options: Options) -> nn.Module:
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, name)
    made: nn.Module = kind(kind.config_class(**options))
    return made


def _hf(inputs: Inputs, sizes: tuple[int, ...], options: Options, *names: str, **more: Any) -> Iterator[Case]:
    for name in names:
        build = partial(_hf_model, name, {**options, **more})
        yield Case("transformers", name, build, inputs, sizes)


def _transformers() -> Iterator[Case]:
    yield from _encoders()
    yield from _decoders()
    yield from _pairs()
    yield from _vision()
    yield from _several_inputs()
    yield from _sound_and_series()


def _encoders() -> Iterator[Case]:
    names = ("Bert", "Roberta", "Albert", "Electra", "MPNet", "FNet", "ConvBert", "RoFormer", "Nystromformer")
    classes = [f"{name}ForSequenceClassification" for name in names if name != "FNet"]
    yield from _hf(_text, (10, 13), TEXT, *classes, embedding_size=16)
    yield from _hf(_tokens, (10, 13), TEXT, "FNetForSequenceClassification")
    yield from _hf(_text, (10, 13), TEXT, "BertModel", output_hidden_states=True)
    yield from _hf(_text, (10, 13), TEXT, "BertForMaskedLM", "RobertaForTokenClassification")
    yield from _hf(_text, (10, 13), TEXT, "DebertaForSequenceClassification", relative_attention=True,
                   pos_att_type=["c2p", "p2c"])  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "DebertaV2ForSequenceClassification", relative_attention=True,
                   pos_att_type=["c2p", "p2c"], position_buckets=8)  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "DistilBertForSequenceClassification", dim=32, n_layers=4,
                   n_heads=4, hidden_dim=37)  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "ModernBertForSequenceClassification", "MegatronBertForMaskedLM",
                   "ErnieForSequenceClassification",
                   "LayoutLMForSequenceClassification", "IBertForSequenceClassification")  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "MobileBertForSequenceClassification", embedding_size=32,
                   intra_bottleneck_size=16, true_hidden_size=16)  # fmt: skip
    funnel = {
        "vocab_size": 99,
        "block_sizes": [1, 1, 2],
        "d_model": 32,
        "n_head": 4,
        "d_head": 8,
        "d_inner": 37,
    }
    yield from _hf(_text, (10, 13), funnel, "FunnelForSequenceClassification", num_decoder_layers=1)
    net = {"vocab_size": 99, "d_model": 32, "n_layer": 4, "n_head": 4, "d_inner": 37}
    yield from _hf(_text, (10, 13), net, "XLNetForSequenceClassification")
    yield from _hf(_text, (16, 24), TEXT, "LongformerForSequenceClassification", attention_window=4)
    yield from _hf(_text, (16, 24), TEXT, "BigBirdForSequenceClassification", attention_type="original_full")
    yield from _hf(_text, (10, 13), TEXT, "XLMForSequenceClassification", emb_dim=32, n_layers=4, n_heads=4)
    yield from _hf(_text, (10, 13), TEXT, "YosoForSequenceClassification")


def _decoders() -> Iterator[Case]:
    yield from _hf(_text, (10, 13), TEXT, "GPT2LMHeadModel", n_embd=32, n_layer=4, n_head=4, n_positions=64)
    yield from _hf(_text, (10, 13), TEXT, "OPTForCausalLM", ffn_dim=37,
                   word_embed_proj_dim=32)  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "GPTNeoXForCausalLM", "BloomForCausalLM", "XGLMForCausalLM",
                   "OpenAIGPTLMHeadModel", "CTRLLMHeadModel", "BioGptForCausalLM", d_model=32, num_layers=4,
                   attention_heads=4, ffn_dim=37, n_layer=4, n_head=4, n_embd=32, dff=37)  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "GPTNeoForCausalLM", attention_types=[[["global", "local"], 2]],
                   num_layers=4, num_heads=4)  # fmt: skip
    yield from _hf(_text, (10, 13), TEXT, "GPTJForCausalLM", "CodeGenForCausalLM", n_embd=32, n_layer=4,
                   n_head=4, rotary_dim=4, n_positions=64)  # fmt: skip
    names = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi", "StableLm", "Starcoder2", "Olmo2",
             "Cohere", "Granite", "Glm", "Persimmon", "Nemotron")  # fmt: skip
    yield from _hf(_text, (10, 13), GROUPED, *(f"{name}ForCausalLM" for name in names))
    yield from _hf(_text, (10, 13), GROUPED, "Phi3ForCausalLM", "Gemma3ForCausalLM", "SmolLM3ForCausalLM")
    yield from _hf(_text, (10, 13), GROUPED, "LlamaForSequenceClassification", "Qwen2ForTokenClassification")
    yield from _hf(_text, (10, 13), TEXT, "FalconForCausalLM", "MptForCausalLM", d_model=32, n_layers=4,
                   n_heads=4, max_seq_len=64)  # fmt: skip
    yield from _hf(_text, (10, 13), EXPERTS, "MixtralForCausalLM", "Qwen2MoeForCausalLM",
                   "Qwen3MoeForCausalLM", "GraniteMoeForCausalLM", "OlmoeForCausalLM",
                   moe_intermediate_size=16, shared_expert_intermediate_size=16)  # fmt: skip
    yield from _hf(_tokens, (10, 13), TEXT, "MambaForCausalLM", "FalconMambaForCausalLM", state_size=4,
                   expand=2)  # fmt: skip
    yield from _hf(_tokens, (10, 13), TEXT, "Mamba2ForCausalLM", num_heads=8, head_dim=8, state_size=4,
                   n_groups=2, chunk_size=4)  # fmt: skip
    yield from _hf(_tokens, (10, 13), TEXT, "RwkvForCausalLM", attention_hidden_size=32)


def _pairs() -> Iterator[Case]:
    yield from _hf(_text_pair, (10, 13), T5, "T5ForConditionalGeneration", "MT5ForConditionalGeneration",
                   "UMT5ForConditionalGeneration")  # fmt: skip
    yield from _hf(_text, (10, 13), T5, "T5EncoderModel")
    yield from _hf(_text_pair, (10, 13), PAIR, "BartForConditionalGeneration", "PegasusForConditionalGeneration",
                   "MarianMTModel", "M2M100ForConditionalGeneration", "BlenderbotForConditionalGeneration",
                   "MBartForConditionalGeneration")  # fmt: skip
    yield from _hf(_spectrum, (40,), PAIR, "WhisperForConditionalGeneration", num_mel_bins=16,
                   max_source_positions=20, max_target_positions=32, bos_token_id=1, eos_token_id=2)  # fmt: skip


def _vision() -> Iterator[Case]:
    yield from _hf(_pixels, (32,), PICTURE, "ViTForImageClassification", "DeiTForImageClassification",
                   "BeitForImageClassification", "Data2VecVisionForImageClassification",
                   "ViTMSNForImageClassification")  # fmt: skip
    yield from _hf(_pixels, (32, 48), PICTURE, "Dinov2ForImageClassification")
    yield from _hf(_pixels, (64,), STAGES, "SwinForImageClassification", "Swinv2ForImageClassification",
                   window_size=2)  # fmt: skip
    yield from _hf(_pixels, (64, 96), STAGES, "FocalNetForImageClassification")
    yield from _hf(_pixels, (64, 96), CONVS, "ResNetForImageClassification", "RegNetForImageClassification",
                   "ConvNextForImageClassification", "ConvNextV2ForImageClassification", groups_width=4,
                   num_groups=4)  # fmt: skip
    yield from _hf(_pixels, (64, 96), CONVS, "BitForImageClassification", num_groups=4)
    yield from _hf(_pixels, (64, 96), {}, "MobileNetV1ForImageClassification",
                   "MobileNetV2ForImageClassification", depth_multiplier=0.25)  # fmt: skip
    yield from _hf(_pixels, (64, 96), {}, "MobileViTForImageClassification", "MobileViTForSemanticSegmentation",
                   image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
                   num_attention_heads=2)  # fmt: skip
    small = {"hidden_sizes": [8, 16, 16, 24], "depths": [1, 1, 2, 1], "decoder_hidden_size": 16}
    yield from _hf(_pixels, (64, 96), small, "SegformerForImageClassification",
                   "SegformerForSemanticSegmentation", num_attention_heads=[1, 2, 2, 3])  # fmt: skip
    yield from _hf(_pixels, (64, 96), small, "PvtV2ForImageClassification", image_size=64,
                   num_attention_heads=[1, 2, 2, 3])  # fmt: skip
    yield from _hf(_pixels, (64, 96), small, "PoolFormerForImageClassification", "GLPNForDepthEstimation",
                   num_attention_heads=[1, 2, 2, 3])  # fmt: skip
    yield from _hf(_pixels, (64,), {}, "PvtForImageClassification", image_size=64, hidden_sizes=[8, 16, 16, 24],
                   depths=[1, 1, 2, 1], num_attention_heads=[1, 2, 2, 3])  # fmt: skip
    yield from _hf(_pixels, (64,), {}, "LevitForImageClassification", image_size=64, hidden_sizes=[16, 24, 32],
                   num_attention_heads=[2, 2, 2], key_dim=[8, 8, 8], depths=[2, 2, 2])  # fmt: skip
    yield from _hf(_pixels, (64, 96), {}, "EfficientNetForImageClassification", width_coefficient=0.25,
                   depth_coefficient=0.25, hidden_dim=320)  # fmt: skip
    yield from _hf(_pixels, (32,), PICTURE, "DPTForSemanticSegmentation", backbone_out_indices=[0, 1, 2, 3],
                   neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8)  # fmt: skip
    yield from _hf(_video, (32,), PICTURE, "VideoMAEForVideoClassification", "TimesformerForVideoClassification",
                   num_frames=4, tubelet_size=2)  # fmt: skip
    yield from _hf(_pixels, (64,), {}, "HieraForImageClassification", image_size=[64, 64], embed_dim=16,
                   depths=[1, 1, 2, 1], num_heads=[1, 1, 2, 2])  # fmt: skip
    yield Case("transformers", "UperNetForSemanticSegmentation", _upernet, _pixels, (64, 96))


def _upernet() -> nn.Module:
    transformers = importlib.import_module("transformers")
    backbone = transformers.ConvNextConfig(**CONVS, out_features=["stage1", "stage2", "stage3", "stage4"])
    config = transformers.UperNetConfig(
        backbone_config=backbone, hidden_size=16, auxiliary_channels=8, auxiliary_in_channels=16
    )
    made: nn.Module = transformers.UperNetForSemanticSegmentation(config)
    return made


def _several_inputs() -> Iterator[Case]:
    both = {"text_config": {**TEXT, "projection_dim": 16}, "vision_config": dict(PICTURE)}
    yield from _hf(_captioned, (10, 13), both, "CLIPModel", "SiglipModel", "AltCLIPModel", "ChineseCLIPModel",
                   projection_dim=16)  # fmt: skip
    yield from _hf(_captioned, (10, 13), {**TEXT, **PICTURE}, "ViltForQuestionAnswering")
    sizes = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 37}
    yield from _hf(_text, (10, 13), {**TEXT, **sizes}, "CLIPTextModel")
    yield from _hf(_pixels, (32,), PICTURE, "CLIPVisionModel")


def _sound_and_series() -> Iterator[Case]:
    yield from _hf(_wave, (400, 520), SOUND, "Wav2Vec2ForCTC", "HubertForCTC", "WavLMForCTC", layerdrop=0.0,
                   mask_time_prob=0.0)  # fmt: skip
    yield from _hf(_wave, (400, 520), SOUND, "Wav2Vec2ForSequenceClassification", classifier_proj_size=16,
                   layerdrop=0.0, mask_time_prob=0.0)  # fmt: skip
    yield from _hf(_wave, (400, 520), SOUND, "Wav2Vec2Model")
    yield from _hf(lambda batch, size: {"input_values": torch.randn(batch, 48, 16)}, (48,), PICTURE,
                   "ASTForAudioClassification", max_length=48, num_mel_bins=16, patch_size=8,
                   frequency_stride=8, time_stride=8)  # fmt: skip
    series: Options = {"num_input_channels": 3, "context_length": 32, "patch_length": 4, "patch_stride": 4,
                       "d_model": 16, "num_layers": 4, "num_hidden_layers": 4, "ffn_dim": 32,
                       "num_attention_heads": 4, "num_targets": 2}  # fmt: skip
    yield from _hf(_series, (32,), series, "PatchTSTForClassification", "PatchTSMixerForTimeSeriesClassification",
                   "PatchTSTForPrediction")  # fmt: skip


# Libraries on top of it


def _adapted(kind: str, base: str, options: Options, **settings: Any) -> nn.Module:
    peft = importlib.import_module("peft")
    made: nn.Module = peft.get_peft_model(_hf_model(base, options), getattr(peft, kind)(**settings))
    return made


def _peft() -> Iterator[Case]:
    tied = {**GROUPED, "tie_word_embeddings": True}
    gpt = {**TEXT, "n_embd": 32, "n_layer": 4, "n_head": 4, "tie_word_embeddings": True}
    cases: dict[str, Callable[[], nn.Module]] = {
        "LoRA on Llama": partial(_adapted, "LoraConfig", "LlamaForCausalLM", GROUPED,
                                 task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]),
        "LoRA on tied Llama": partial(_adapted, "LoraConfig", "LlamaForCausalLM", tied,
                                      task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]),
        "LoRA on tied GPT-2": partial(_adapted, "LoraConfig", "GPT2LMHeadModel", gpt, task_type="CAUSAL_LM",
                                      target_modules=["c_attn"], fan_in_fan_out=True),
        "LoRA on BERT": partial(_adapted, "LoraConfig", "BertForSequenceClassification", TEXT,
                                task_type="SEQ_CLS", target_modules=["query", "value"], lora_dropout=0.1),
        "IA3 on Llama": partial(_adapted, "IA3Config", "LlamaForCausalLM", GROUPED, task_type="CAUSAL_LM",
                                target_modules=["k_proj", "v_proj", "down_proj"],
                                feedforward_modules=["down_proj"]),
        "DoRA on Qwen2": partial(_adapted, "LoraConfig", "Qwen2ForCausalLM", GROUPED, task_type="CAUSAL_LM",
                                 target_modules=["q_proj", "v_proj"], use_dora=True),
    }  # fmt: skip
    for name, build in cases.items():
        yield Case("peft", name, build, _text, (10, 13))


def _torchvision() -> Iterator[Case]:
    names = ("alexnet", "resnet18", "densenet121", "googlenet",
             "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5", "squeezenet1_1",
             "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf", "swin_t",
             "swin_v2_t")  # fmt: skip
    for name in names:
        options: dict[str, Any] = {"init_weights": True} if name == "googlenet" else {}
        build = partial(_make, f"torchvision.models:{name}", weights=None, num_classes=7, **options)
        yield Case("torchvision", name, build, _picture, (64, 96))
    yield Case("torchvision", "inception_v3",
               partial(_make, "torchvision.models:inception_v3", weights=None, num_classes=7, init_weights=False,
                       aux_logits=False),
               _picture, (96, 128))  # fmt: skip
    yield Case("torchvision", "vit",
               partial(_make, "torchvision.models:VisionTransformer", image_size=32, patch_size=8, num_layers=4,
                       num_heads=4, hidden_dim=32, mlp_dim=37), _picture, (32,))  # fmt: skip
    yield Case("torchvision", "maxvit",
               partial(_make, "torchvision.models:MaxVit", input_size=(64, 64), stem_channels=8, partition_size=2,
                       block_channels=[8, 16, 16, 24], block_layers=[1, 1, 1, 1], head_dim=4,
                       stochastic_depth_prob=0.1), _picture, (64,))  # fmt: skip
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50"):
        build = partial(
            _make,
            f"torchvision.models.segmentation:{name}",
            weights=None,
            weights_backbone=None,
            num_classes=5,
        )
        yield Case("torchvision", name, build, _picture, (64, 96))


def _timm_model(name: str, **options: Any) -> nn.Module:
    return _make("timm:create_model", name, pretrained=False, num_classes=5, **options)


def _timm() -> Iterator[Case]:
    names = ("test_vit", "test_vit2", "test_vit3", "test_vit4", "test_resnet", "test_convnext", "test_convnext2",
             "test_efficientnet", "test_efficientnet_evos", "test_byobnet", "test_mambaout", "test_nfnet")  # fmt: skip
    for name in names:
        yield Case("timm", name, partial(_timm_model, name), _picture, (160, 192))
    larger = ("mobilenetv3_small_050", "efficientvit_b0", "ghostnet_050", "lcnet_035", "tinynet_e", "resnet10t",
             "mobileone_s0", "repvgg_a0", "fasternet_t0", "edgenext_xx_small", "mobilevit_xxs", "mobilevitv2_050",
             "regnetx_002", "hrnet_w18_small", "dla46_c", "poolformer_s12", "pvt_v2_b0", "mobilenetv4_conv_small",
             "xcit_nano_12_p16_224", "dpn48b", "skresnet18", "selecsls42", "starnet_s1",
             "convmixer_768_32" , "hardcorenas_a", "fbnetc_100", "rexnet_100", "seresnet18", "resnest14d",
             "cspresnet50", "darknet17", "vovnet39a", "gernet_s", "tiny_vit_5m_224")  # fmt: skip
    for name in larger:
        yield Case("timm", name, partial(_timm_model, name), _picture, (96, 128))
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 4, "num_heads": 4}
    for name in ("deit_tiny_distilled_patch16_224", "cait_xxs24_224", "beit_base_patch16_224",
                 "eva02_tiny_patch14_224"):  # fmt: skip
        yield Case("timm", name, partial(_timm_model, name, **small), _picture, (32,))
    yield Case("timm", "levit_128s", partial(_timm_model, "levit_128s"), _picture, (224,))
    yield Case("timm", "mixer_s32_224", partial(_timm_model, "mixer_s32_224", img_size=96), _picture, (96,))


def _smp() -> Iterator[Case]:
    smp = "segmentation_models_pytorch"
    names = ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus", "PAN",
             "UPerNet", "Segformer")  # fmt: skip
    for name in names:
        build = partial(_make, f"{smp}:{name}", encoder_name="resnet18", encoder_weights=None, classes=3)
        sizes = (128, 160) if name == "PAN" else (64, 96)
        yield Case(smp, name, build, _picture, sizes)
    for encoder in ("mobilenet_v2", "efficientnet-b0", "mit_b0", "timm-mobilenetv3_small_075", "densenet121"):
        build = partial(_make, f"{smp}:Unet", encoder_name=encoder, encoder_weights=None, classes=3)
        yield Case(smp, f"Unet of {encoder}", build, _picture, (64, 96))
    yield Case(smp, "Unet with a classifier",
               partial(_make, f"{smp}:Unet", encoder_name="resnet18", encoder_weights=None, classes=3,
                       aux_params={"classes": 4}), _picture, (64, 96))  # fmt: skip


def _monai() -> Iterator[Case]:
    flat = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    nets: list[tuple[str, Options, Inputs, tuple[int, ...]]] = [
        ("UNet", {**flat, "channels": (4, 8, 8, 16, 16), "strides": (2, 2, 2, 2), "num_res_units": 2}, _grey, (32, 48)),
        ("BasicUNet", {**flat, "features": (4, 4, 8, 8, 16, 4)}, _grey, (32, 48)),
        ("AttentionUnet", {**flat, "channels": (4, 8, 8, 16), "strides": (2, 2, 2)}, _grey, (32, 48)),
        ("SegResNet", {**flat, "init_filters": 8}, _grey, (32, 48)),
        ("DynUNet", {**flat, "kernel_size": [3] * 4, "strides": [1, 2, 2, 2], "upsample_kernel_size": [2] * 3,
                     "filters": [4, 8, 8, 16]}, _grey, (32, 48)),
        ("VNet", {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, _grey, (32, 64)),
        ("UNETR", {"in_channels": 1, "out_channels": 2, "img_size": 32, "feature_size": 4, "hidden_size": 32,
                   "mlp_dim": 37, "num_heads": 4, "spatial_dims": 2}, _grey, (32,)),
        ("SwinUNETR", {"in_channels": 1, "out_channels": 2, "feature_size": 12, "spatial_dims": 2,
                       "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4)}, _grey, (64, 96)),
        ("DenseNet121", flat, _grey, (64, 96)),
        ("SENet154", {"spatial_dims": 2, "in_channels": 1, "num_classes": 3, "layers": (1, 1, 2, 1)}, _grey, (64, 96)),
        ("resnet18", {"spatial_dims": 2, "n_input_channels": 1, "num_classes": 3}, _grey, (64, 96)),
        ("EfficientNetBN", {"model_name": "efficientnet-b0", "pretrained": False, **{"spatial_dims": 2,
                            "in_channels": 1, "num_classes": 3}}, _grey, (64, 96)),
        ("ViT", {"in_channels": 1, "img_size": 32, "patch_size": 8, "hidden_size": 32, "mlp_dim": 37,
                 "num_layers": 4, "num_heads": 4, "classification": True, "spatial_dims": 2}, _grey, (32,)),
        ("FlexibleUNet", {"in_channels": 3, "out_channels": 2, "backbone": "efficientnet-b0",
                          "decoder_channels": (16, 16, 8, 8, 4)}, _picture, (64, 96)),
        ("BasicUNetPlusPlus", {**flat, "features": (4, 4, 8, 8, 16, 4)}, _grey, (32, 48)),
        ("HighResNet", {**flat}, _grey, (32, 48)),
    ]  # fmt: skip
    for name, options, inputs, sizes in nets:
        yield Case("monai", name, partial(_make, f"monai.networks.nets:{name}", **options), inputs, sizes)
    deep = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "channels": (4, 8, 8), "strides": (2, 2)}
    yield Case("monai", "UNet 3D", partial(_make, "monai.networks.nets:UNet", **deep), _volume, (16, 24))


def _noisy(batch: int, size: int) -> dict[str, Tensor]:
    return {"sample": torch.randn(batch, 4, size, size), "timestep": torch.arange(batch) + 1}


def _conditioned(batch: int, size: int) -> dict[str, Tensor]:
    return {**_noisy(batch, size), "encoder_hidden_states": torch.randn(batch, 5, 16)}


def _labelled(batch: int, size: int) -> dict[str, Tensor]:
    noisy = {"hidden_states": torch.randn(batch, 4, size, size), "timestep": torch.arange(batch) + 1}
    return {**noisy, "class_labels": torch.arange(batch) % 3}


def _sample(batch: int, size: int) -> dict[str, Tensor]:
    return {"sample": torch.randn(batch, 3, size, size)}


def _diffusers() -> Iterator[Case]:
    blocks = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
    yield Case("diffusers", "UNet2DModel", partial(_make, "diffusers:UNet2DModel", in_channels=4, out_channels=4,
               down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
               attention_head_dim=4, **blocks), _noisy, (16, 24))  # fmt: skip
    yield Case("diffusers", "UNet2DConditionModel", partial(_make, "diffusers:UNet2DConditionModel",
               down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=16,
               up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=4, **blocks),
               _conditioned, (16, 24))  # fmt: skip
    yield Case("diffusers", "AutoencoderKL", partial(_make, "diffusers:AutoencoderKL", latent_channels=4,
               down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, **blocks),
               _sample, (16, 24))  # fmt: skip
    yield Case("diffusers", "VQModel", partial(_make, "diffusers:VQModel", latent_channels=4,
               down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, **blocks),
               _sample, (16, 24))  # fmt: skip
    yield Case("diffusers", "DiTTransformer2DModel", partial(_make, "diffusers:DiTTransformer2DModel",
               num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=4, sample_size=16,
               norm_num_groups=4, patch_size=2, num_embeds_ada_norm=10), _labelled, (16,))  # fmt: skip
    yield Case("diffusers", "AutoencoderTiny", partial(_make, "diffusers:AutoencoderTiny",
               encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 2),
               num_decoder_blocks=(2, 1)), _sample, (16, 24))  # fmt: skip


def _vit_pytorch() -> Iterator[Case]:
    small: Options = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 4, "heads": 4,
                      "mlp_dim": 37}  # fmt: skip
    nets: list[tuple[str, Options]] = [
        ("vit_pytorch:ViT", small),
        ("vit_pytorch.simple_vit:SimpleViT", small),
        ("vit_pytorch.deepvit:DeepViT", small),
        ("vit_pytorch.vit_for_small_dataset:ViT", small),
        ("vit_pytorch.parallel_vit:ViT", small),
        ("vit_pytorch.simple_vit_with_register_tokens:SimpleViT", small),
        ("vit_pytorch.cait:CaiT", {**small, "cls_depth": 2}),
        ("vit_pytorch.max_vit:MaxViT", {"num_classes": 5, "dim": 16, "depth": (1, 1, 1), "window_size": 2,
                                        "dim_head": 8, "dim_conv_stem": 8}),
        ("vit_pytorch.twins_svt:TwinsSVT", {"num_classes": 5, "s1_emb_dim": 8, "s2_emb_dim": 8, "s3_emb_dim": 8,
                                            "s4_emb_dim": 8, "s1_local_patch_size": 2, "s2_local_patch_size": 2,
                                            "s3_local_patch_size": 1, "s3_depth": 1, "s4_local_patch_size": 1,
                                            "s1_global_k": 2, "s2_global_k": 2, "s3_global_k": 2,
                                            "s4_global_k": 2}),
        ("vit_pytorch.cct:CCT", {"img_size": 32, "embedding_dim": 32, "num_layers": 4, "num_heads": 4,
                                 "mlp_ratio": 2, "num_classes": 5, "n_input_channels": 3}),
        ("vit_pytorch.crossformer:CrossFormer", {"num_classes": 5, "dim": (32, 32, 64, 64), "depth": (1, 1, 1, 1),
                                                 "global_window_size": (4, 2, 1, 1), "local_window_size": 2}),
        ("vit_pytorch.regionvit:RegionViT", {"num_classes": 5, "dim": (8, 16, 16, 24), "depth": (1, 1, 1, 1),
                                             "window_size": 2}),
        ("vit_pytorch.nest:NesT", {"image_size": 32, "patch_size": 4, "dim": 16, "heads": 2, "num_hierarchies": 2,
                                   "block_repeats": (1, 1), "num_classes": 5}),
        ("vit_pytorch.mobile_vit:MobileViT", {"image_size": (64, 64), "dims": [16, 16, 24],
                                              "channels": [8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32],
                                              "num_classes": 5}),
        ("vit_pytorch.levit:LeViT", {"image_size": 64, "num_classes": 5, "dim": (16, 24, 32), "depth": 2,
                                     "heads": (2, 2, 2), "mlp_mult": 2, "dropout": 0.1}),
    ]  # fmt: skip
    for path, options in nets:
        name = path.removeprefix("vit_pytorch").strip(".").replace(":", " ").strip()
        size = 64 if any(word in path for word in ("mobile", "levit:", "twins", "region", "cross")) else 32
        yield Case("vit_pytorch", name, partial(_make, path, **options), _picture, (size,))


def _x_transformers() -> Iterator[Case]:
    def build(kind: str, causal: bool, **layers: Any) -> nn.Module:
        library = importlib.import_module("x_transformers")
        attention = library.Decoder if causal else library.Encoder
        made: nn.Module = getattr(library, kind)(
            num_tokens=99, max_seq_len=64, attn_layers=attention(dim=32, depth=4, heads=4, **layers)
        )
        return made

    variants: dict[str, Options] = {
        "decoder": {},
        "decoder with rotary positions": {"rotary_pos_emb": True},
        "decoder with alibi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
        "decoder with relative positions": {"rel_pos_bias": True},
        "decoder with gates": {"ff_glu": True, "use_rmsnorm": True},
    }
    for name, layers in variants.items():
        build_it = partial(build, "TransformerWrapper", True, **layers)
        yield Case("x_transformers", name, build_it, _ids, (10, 13))
    yield Case("x_transformers", "encoder", partial(build, "TransformerWrapper", False), _ids, (10, 13))


def _others() -> Iterator[Case]:
    yield Case("efficientnet_pytorch", "EfficientNet",
               partial(_make, "efficientnet_pytorch:EfficientNet.from_name", "efficientnet-b0", num_classes=5),
               _picture, (64,))  # fmt: skip
    for name in ("MLP", "ResNet"):
        extra: Options = (
            {"d_block": 16}
            if name == "MLP"
            else {"d_block": 16, "d_hidden": 24, "d_hidden_multiplier": None, "dropout2": 0.1}
        )
        yield Case("rtdl_revisiting_models", name, partial(_make, f"rtdl_revisiting_models:{name}", d_in=12,
                   d_out=3, n_blocks=4, **({"dropout": 0.1} if name == "MLP" else {"dropout1": 0.1}), **extra),
                   _vectors, (12,))  # fmt: skip
    yield Case("rtdl_revisiting_models", "FTTransformer",
               partial(_make, "rtdl_revisiting_models:FTTransformer", n_cont_features=12, cat_cardinalities=[4, 4],
                       d_out=3, n_blocks=4, d_block=16, attention_n_heads=4, attention_dropout=0.1,
                       ffn_d_hidden=20, ffn_d_hidden_multiplier=None, ffn_dropout=0.1, residual_dropout=0.0),
               _columns, (12,))  # fmt: skip
    yield Case("pytorch_tabnet", "TabNet", partial(_make, "pytorch_tabnet.tab_network:TabNet", 12, 3,
               group_attention_matrix=torch.eye(12)), _vectors, (12,))  # fmt: skip
    for name in ("GCN", "GraphSAGE", "GAT"):
        yield Case(
            "torch_geometric", name, partial(_make, f"torch_geometric.nn:{name}", 8, 16, 4, 3), _graph, (6,)
        )
    yield Case("open_clip", "CLIP", partial(_make, "open_clip:CLIP", embed_dim=16,
               vision_cfg={"image_size": 32, "patch_size": 8, "layers": 3, "width": 32, "head_width": 8},
               text_cfg={"context_length": 10, "vocab_size": 99, "width": 32, "heads": 4, "layers": 3}),
               _picture_and_words, (32,))  # fmt: skip
    yield Case("torch", "Transformer", partial(_make, "torch.nn:Transformer", 16, 4, 3, 3, 20, batch_first=True),
               lambda batch, size: (_features(batch, size), _features(batch, size - 2)), (8, 11))  # fmt: skip
    yield Case("torch", "TransformerEncoder", _torch_encoder, _features, (8, 11))


def _torch_encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 20, batch_first=True), 4)


def _columns(batch: int, size: int) -> dict[str, Tensor]:
    return {"x_cont": torch.randn(batch, size), "x_cat": torch.randint(0, 4, (batch, 2))}


def _graph(nodes: int, size: int) -> tuple[Tensor, Tensor]:
    edges = torch.stack([torch.arange(size) % nodes, (torch.arange(size) + 1) % nodes])
    return torch.randn(nodes, 8), edges


def _picture_and_words(batch: int, size: int) -> tuple[Tensor, Tensor]:
    return _picture(batch, size), _ids(batch, 10)
