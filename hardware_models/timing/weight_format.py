"""How a weight format moves and computes: bytes of weights and activations, peak rate used."""

from __future__ import annotations

from dataclasses import dataclass

from dynosim.hardware_models.errors import unknown_name
from dynosim.hardware_models.gpus import Gpu


@dataclass(frozen=True)
class WeightFormat:
    """One format of a GEMM's weights.

    ``weight_bytes`` per element includes scales; ``compute`` names the peak rate in
    :attr:`Gpu.peak_flop_s`. ``gemm_tables`` and ``moe_tables`` name the dtypes of the measured
    tables that hold this format, best first. ``quantising`` are the parts of quantising its input
    (:mod:`.quantise`) that a GEMM of this format does itself.
    """

    name: str
    weight_bytes: float
    activation_bytes: float
    compute: str
    gemm_tables: tuple[str, ...]
    moe_tables: tuple[str, ...]
    quantising: tuple[str, ...] = ()
    foreign_to: tuple[str, ...] = ()
    """Backends whose tables hold other kernels for the experts."""

    @property
    def base(self) -> str:
        """The format's name without who quantises the input."""
        return self.name.removesuffix("_fused").removesuffix("_static")

    @property
    def unpacks(self) -> bool:
        """Whether kernels turn the weights into 16-bit ones before they multiply."""
        return self.compute == "bfloat16" and self.weight_bytes < 2.0


def _format(
    name: str,
    weight_bytes: float,
    activation_bytes: float,
    compute: str,
    gemm_tables: tuple[str, ...] | None = None,
    moe_tables: tuple[str, ...] | None = None,
    quantising: tuple[str, ...] = (),
) -> WeightFormat:
    gemm = (name,) if gemm_tables is None else gemm_tables
    moe = gemm if moe_tables is None else moe_tables
    return WeightFormat(name, weight_bytes, activation_bytes, compute, gemm, moe, quantising)


UNQUANTISED = ("bfloat16", "float16", "float32")
"""Dtypes in which a model's weights may be computed as they are; tables in the first that there is
stand for all."""

# Scales: one 4-byte scale per 128 x 128 block (fp8_block), one byte per 16 (nvfp4) or per 32
# (mxfp4) elements, 2-byte scale and half-byte zero point per group of 128 (int4).
FORMATS: dict[str, WeightFormat] = {
    f.name: f
    for f in (
        # Only a CPU's tables have others: its engines serve unquantised models in 32 bits.
        _format("bfloat16", 2.0, 2.0, "bfloat16", UNQUANTISED, ("bfloat16",)),
        _format("fp8", 1.0, 1.0, "fp8", quantising=("scale", "cast")),
        # Scales come with the checkpoint; and the kernel before the GEMM casts its output.
        _format("fp8_static", 1.0, 1.0, "fp8", ("fp8",), quantising=("cast",)),
        _format("fp8_fused", 1.0, 1.0, "fp8", ("fp8",)),
        _format("fp8_block", 1.0 + 4 / 16384, 1.0, "fp8"),
        # The kernels of ``moe_backend: trtllm``; TensorRT-LLM's table has DeepGEMM's or CUTLASS's.
        WeightFormat(
            *("fp8_block_trtllm_gen", 1.0 + 4 / 16384, 1.0, "fp8"),
            *(("fp8_block",), ("fp8_block",), (), ("trtllm",)),
        ),
        _format("int8", 1.0, 1.0, "int8", ("sq", "int8")),
        _format("int8_wo", 1.0, 2.0, "bfloat16"),
        _format("int4_wo", 0.5 + 2.5 / 128, 2.0, "bfloat16"),
        _format("nvfp4", 0.5 + 1 / 16, 0.5 + 1 / 16, "nvfp4", quantising=("cast",)),
        _format("nvfp4_fused", 0.5 + 1 / 16, 0.5 + 1 / 16, "nvfp4", ("nvfp4",)),
        _format("w4a16_mxfp4", 0.5 + 1 / 32, 2.0, "bfloat16"),
        _format("w4a8_mxfp4_mxfp8", 0.5 + 1 / 32, 1.0 + 1 / 32, "fp8"),
        _format("w4afp8", 0.5 + 2.5 / 128, 1.0, "fp8"),
    )
}

ALIASES: dict[str, str] = {
    "auto": "bfloat16",
    "none": "bfloat16",
    "float16": "bfloat16",
    "half": "bfloat16",
    "float32": "bfloat16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_per_channel": "fp8",
    "fp8_per_tensor": "fp8",
    "int8_w8a8": "int8",
    "int8_w8a16": "int8_wo",
    "int8_weight_only": "int8_wo",
    "w8a16": "int8_wo",
    "w8a8": "int8",
    "int4": "int4_wo",
    "int4_w4a16": "int4_wo",
    "int4_weight_only": "int4_wo",
    "awq": "int4_wo",
    "gptq": "int4_wo",
    "w4a16": "int4_wo",
    "mxfp4": "w4a16_mxfp4",
    "fp4": "nvfp4",
}


def weight_format(dtype: str) -> WeightFormat:
    """Returns the format of that name or alias; UserError with the nearest names if unknown."""
    name = ALIASES.get(dtype, dtype)
    if name not in FORMATS:
        raise unknown_name("weight format", dtype, [*FORMATS, *ALIASES])
    return FORMATS[name]


def executed_format(dtype: str, gpu: Gpu) -> WeightFormat:
    """Returns how ``gpu`` really runs ``dtype``.

    A GPU without that dtype's tensor cores unpacks the weights and computes in bfloat16, as the
    Marlin kernels of vLLM and SGLang do (fp8 on Ampere, 4-bit floats on Hopper). MXFP4 weights
    meet 8-bit activations on Blackwell, 16-bit ones before it.
    """
    wanted = weight_format(dtype)
    peaks = dict(gpu.peak_flop_s)
    if wanted.name == "w4a16_mxfp4" and gpu.compute_capability >= 10.0:
        wanted = FORMATS["w4a8_mxfp4_mxfp8"]
    if wanted.compute in peaks or wanted.compute == "bfloat16":
        return wanted
    unpacked = f"{wanted.base}_unpacked"
    tables = {"nvfp4": ("w4a16_mxfp4",), "w4a8_mxfp4_mxfp8": ("w4a16_mxfp4",)}
    held = tables.get(wanted.base, ())
    return WeightFormat(unpacked, wanted.weight_bytes, 2.0, "bfloat16", held, held)
