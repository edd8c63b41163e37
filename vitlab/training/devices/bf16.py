"""Whether this machine multiplies bf16 matrices in hardware."""

import torch


def gpu_has_bf16() -> bool:
    """Whether this GPU multiplies bf16 matrices in hardware; torch emulates it on older ones (T4, V100), slowly."""
    return torch.cuda.is_bf16_supported(including_emulation=False)


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bf16 matrices in hardware (AVX512-BF16 or AMX)."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if capabilities:
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))
    return torch.cpu._is_avx512_bf16_supported()
