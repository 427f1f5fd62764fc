"""Layers of today's models.

Their norms and recurrences compute in float32. Queries and keys are rotated, by angles of 0.
Gated DeltaNet's projections are reordered for their layer in every pass. In its chunks
logs of decays are differences of float32 sums, which strong decays make less precise: its error is
8e-7 at standard normal inputs and 5e-5 at 30 times those.
"""

from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms import (
    differential,
    fnet,
    gated_delta_net,
    grouped_query,
    kimi_delta,
    latent,
    lightning,
    mamba2,
    sliding_window,
)
from attnbench.mechanisms.mamba2 import inner_heads
from attnbench.mechanisms.peers.transformers.maps import ByHead, Forget, Taps, Third
from attnbench.mechanisms.peers.transformers.sublayer import Sublayer
from attnbench.records import Workload


class Mixer(Sublayer):
    takes_causal = True
    tolerance = 1e-5

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.package_layer(x)


class FNet(Sublayer, fnet.FNet):
    module = "transformers.models.fnet.modeling_fnet"
    takes_padding = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.FNetConfig(hidden_size=workload.width)
        return self.library.FNetBasicFourierTransform(sizes)

    def mixed(self, x: Tensor) -> Tensor:
        return self.package_layer(x)[0]


class GatedDeltaNet(Mixer, gated_delta_net.Chunked):
    module = "transformers.models.qwen3_next.modeling_qwen3_next"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        H = workload.heads
        d = workload.head_width
        V, wide = gated_delta_net.values(config, workload)
        sizes = self.library.Qwen3NextConfig(
            hidden_size=workload.width,
            linear_num_key_heads=H,
            linear_num_value_heads=V,
            linear_key_head_dim=d,
            linear_value_head_dim=wide,
            linear_conv_kernel_dim=config.conv,
            num_hidden_layers=1,
            layer_types=["linear_attention"],
        )
        layer = self.library.Qwen3NextGatedDeltaNet(sizes, 0)
        layer.in_proj_qkvz = ByHead(
            H, (d, d, config.wider * d, config.wider * d), self.mix, self.gate
        )
        layer.in_proj_ba = ByHead(H, (V // H, V // H), self.rates)
        layer.A_log = self.A
        layer.dt_bias = self.b
        layer.norm.weight = self.norm.weight
        layer.out_proj = self.output
        layer.conv1d = Taps(self.taps)
        return layer

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if not config.gate:
            return "transformers' Qwen3-Next has no DeltaNet without gates; leave gate=False out"
        if config.negative:
            return "transformers' Qwen3-Next has β below 1; leave negative out"
        return None


class Mamba2(Mixer, mamba2.Chunked):
    module = "transformers.models.mamba2.modeling_mamba2"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        _, heads, head_width = inner_heads(config, workload)
        sizes = self.library.Mamba2Config(
            hidden_size=workload.width,
            expand=config.expand,
            num_heads=heads,
            head_dim=head_width,
            state_size=config.state,
            n_groups=config.groups,
            conv_kernel=config.conv,
            chunk_size=config.chunk,
            num_hidden_layers=1,
        )
        layer = self.library.Mamba2Mixer(sizes, 0)
        layer.in_proj = self.mix
        layer.out_proj = self.output
        layer.A_log = self.A
        layer.dt_bias = self.beta
        layer.D = self.skip
        layer.norm.weight = self.scales
        layer.conv1d = Taps(self.taps, self.taps_bias)
        return layer

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if config.heads is not None:
            return "transformers' Mamba-2 has as many heads as fill e D; leave heads out"
        return None


class Latent(Mixer, latent.Sdpa):
    module = "transformers.models.deepseek_v3.modeling_deepseek_v3"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.DeepseekV3Config(
            hidden_size=workload.width,
            num_attention_heads=workload.heads,
            num_key_value_heads=workload.heads,
            q_lora_rank=config.query_rank,
            kv_lora_rank=self.rank,
            qk_nope_head_dim=workload.head_width,
            qk_rope_head_dim=self.rope,
            v_head_dim=workload.head_width,
            num_hidden_layers=1,
            attn_implementation="sdpa",
        )
        layer = self.library.DeepseekV3Attention(sizes, 0)
        if config.query_rank is None:
            layer.q_proj = self.query
        else:
            queries: Any = self.query
            layer.q_a_proj, norm, layer.q_b_proj = queries
            layer.q_a_layernorm.weight = norm.weight
        layer.kv_a_proj_with_mqa = self.down
        layer.kv_b_proj = self.up
        layer.kv_a_layernorm.weight = self.norm.weight
        layer.o_proj = self.output
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.package_layer(x, unrotated(x, self.rope), None, is_causal=self.causal)[0]

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        _, rope = latent.widths(config, w)
        if rope % 2:
            return f"transformers' DeepSeek-V3 rotates pairs, and rope={rope} is odd"
        return None


class GroupedQuery(Sublayer, grouped_query.Sdpa):
    module = "transformers.models.llama.modeling_llama"
    takes_causal = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.LlamaConfig(**sizes_of(self, workload))
        return sharing(self, self.library.LlamaAttention(sizes, 0))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        rotation = unrotated(x, self.head_width)
        return self.package_layer(x, rotation, None, is_causal=self.causal)[0]

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if config.gate or config.sink_logit:
            return "transformers' Llama has neither gate nor sinks; leave gate and sink_logit out"
        return None


class SlidingWindow(Sublayer, sliding_window.Masked):
    module = "transformers.models.mistral.modeling_mistral"
    takes_causal = True

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.MistralConfig(**sizes_of(self, workload), sliding_window=config.window)
        layer = sharing(self, self.library.MistralAttention(sizes, 0))
        N = workload.seq_len
        w = config.window
        # its models give no mask where the window holds every token
        band = torch.ones(N, N, dtype=torch.bool).tril().triu(1 - w) if w < N else None
        layer.register_buffer("band", band, persistent=False)
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        layer: Any = self.package_layer
        return layer(x, unrotated(x, self.head_width), layer.band)[0]

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        if config.sink_tokens or config.sink_logit:
            return "transformers' Mistral has no sinks; leave sink_tokens and sink_logit out"
        return None


class KimiDelta(Mixer, kimi_delta.Chunked):
    module = "transformers.models.kimi_linear.modeling_kimi_linear"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        sizes = self.library.KimiLinearConfig(
            hidden_size=workload.width,
            linear_num_heads=workload.heads,
            linear_head_dim=workload.head_width,
            linear_conv_kernel_dim=config.conv,
            num_hidden_layers=1,
            layer_types=["linear_attention"],
            rms_norm_eps=gated_delta_net.EPSILON,
        )
        layer = self.library.KimiLinearDeltaAttention(sizes, 0)
        layer.q_proj, layer.k_proj, layer.v_proj = (Third(self.mix, i) for i in range(3))
        layer.conv1d = Taps(self.taps)
        layer.forget_gate = Forget(self)
        layer.b_proj = self.beta
        layer.o_proj = self.output
        layer.g_a_proj, layer.g_b_proj = self.gate
        layer.o_norm.weight = self.norm.weight
        return layer


class Lightning(Mixer, lightning.Chunked):
    module = "transformers.models.minimax.modeling_minimax"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        H = workload.heads
        d = workload.head_width
        sizes = self.library.MiniMaxConfig(
            hidden_size=workload.width,
            num_attention_heads=H,
            num_key_value_heads=H,
            head_dim=d,
            num_hidden_layers=2,
            layer_types=["linear_attention"] * 2,
        )
        layer = self.library.MiniMaxLightningAttention(sizes, 0)
        layer.qkv_proj = ByHead(H, (d, d, d), self.query, self.key, self.value)
        layer.output_gate = self.gate
        layer.out_proj = self.output
        layer.norm.weight = self.norm.weight
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.package_layer(x, None, None)[0]

    @staticmethod
    def unsupported_reason(config: Any, w: Workload) -> str | None:
        return "the form is transformers' first layer; leave depth out" if config.depth else None


class Differential(Mixer, differential.Sdpa):
    module = "transformers.models.diffllama.modeling_diffllama"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        self.kv_heads = workload.heads
        sizes = self.library.DiffLlamaConfig(
            **sizes_of(self, workload), rms_norm_eps=differential.EPSILON
        )
        layer: Any = sharing(self, self.library.DiffLlamaAttention(sizes, config.layer))
        layer.lambda_q1 = self.q1
        layer.lambda_k1 = self.k1
        layer.lambda_q2 = self.q2
        layer.lambda_k2 = self.k2
        layer.is_causal = workload.causal
        return layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.package_layer(x, unrotated(x, self.head_width))[0]


def sizes_of(module: Any, w: Workload) -> dict[str, Any]:
    """What configurations of models with grouped queries need."""
    return {
        "hidden_size": w.width,
        "num_attention_heads": w.heads,
        "num_key_value_heads": module.kv_heads,
        "head_dim": w.head_width,
        "num_hidden_layers": 1,
        "attn_implementation": "sdpa",
    }


def sharing(module: Any, layer: Any) -> nn.Module:
    """Their attention with the projections of a module."""
    layer.q_proj = module.query
    layer.k_proj = module.key
    layer.v_proj = module.value
    layer.o_proj = module.output
    return layer


def unrotated(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of no rotation, [1, N, width] each."""
    shape = 1, x.shape[1], width
    return x.new_ones(shape), x.new_zeros(shape)


FORMS = MappingProxyType(
    {
        "fnet": FNet,
        "gated_delta_net": GatedDeltaNet,
        "kimi_delta": KimiDelta,
        "lightning": Lightning,
        "differential": Differential,
        "mamba2": Mamba2,
        "latent": Latent,
        "grouped_query": GroupedQuery,
        "sliding_window": SlidingWindow,
    }
)
