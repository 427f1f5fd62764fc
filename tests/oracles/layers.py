"""Packages' sub-layers on the parameters of the mechanism's own class."""

from attnbench.mechanisms import axial, linformer, nystromformer
from attnbench.mechanisms.peers import Packed, Shared, not_multiple_reason


class Sublayer(Shared):
    install = "pip install --group oracles"


class Axial(Sublayer, axial.Axial):
    """The package sums both axes, or chains them without the residuals that are added here."""

    package = "axial_attention"
    module = "axial_attention"

    def layer(self, config, workload):
        layer = self.library.AxialAttention(workload.width, 2, workload.heads, dim_index=-1)
        for axis, own in zip(layer.axial_attentions, (self.column, self.row), strict=True):
            axis.fn.to_q, axis.fn.to_kv = own.query, Packed(own.key, own.value)
            axis.fn.to_out = own.output
        return layer

    def forward(self, x, mask=None):
        x = x.unflatten(1, self.config.grid(x.shape[1]))  # [B, h, w, D]
        if self.config.combine == "sum":
            return self.package_layer(x).flatten(1, 2)
        column, row = self.package_layer.axial_attentions
        r = row(x)
        return (r + column(x + r)).flatten(1, 2)

    @staticmethod
    def unsupported_reason(config, w):
        rows, columns = config.grid(w.seq_len)
        if rows * columns != w.seq_len:
            return f"N = {w.seq_len} does not fill a grid of {rows} × {columns}"
        return None


class Linformer(Sublayer, linformer.Linformer):
    """Both reductions are shared by all heads."""

    package = "linformer"
    module = "linformer"

    def layer(self, config, workload):
        layer = self.library.LinformerSelfAttention(
            workload.width, self.E.shape[-1], k=config.rank, heads=workload.heads
        )
        del layer.proj_k, layer.proj_v
        layer.to_q, layer.to_k, layer.to_v = self.query, self.key, self.value
        layer.to_out = self.output
        return layer

    def forward(self, x, mask=None):
        self.package_layer.proj_k, self.package_layer.proj_v = self.E.T, self.F.T
        return self.package_layer(x)

    @staticmethod
    def unsupported_reason(config, w):
        if config.sharing != "headwise":
            return f"linformer has only sharing=headwise, not {config.sharing}"
        return None


class Nystromformer(Sublayer, nystromformer.Nystromformer):
    """Its landmarks skip padding."""

    package = "nystrom-attention"
    module = "nystrom_attention.nystrom_attention"
    deviation = "it scales the start of the iteration by one number for the whole batch"
    takes_padding = True

    def layer(self, config, workload):
        layer = self.library.NystromAttention(
            workload.width,
            workload.head_width,
            workload.heads,
            config.landmarks,
            config.iterations,
            residual=self.conv is not None,
        )
        layer.to_qkv, layer.to_out = Packed(self.query, self.key, self.value), self.output
        if self.conv is not None:
            layer.res_conv = self.conv
        return layer

    def forward(self, x, mask=None):
        return self.package_layer(x, mask=mask)

    @staticmethod
    def unsupported_reason(config, w):
        return not_multiple_reason(w, config.landmarks, 2 * config.landmarks)


FORMS = {"axial": Axial, "linformer": Linformer, "nystromformer": Nystromformer}
