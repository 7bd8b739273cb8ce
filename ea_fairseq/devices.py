"""Devices by their names."""

from __future__ import annotations

import torch

from .errors import UserError


def usable_device(device: str | torch.device, name: str) -> torch.device:
    """A device on which torch can calculate.

    Args:
        device: such as "cuda:1"
        name: what messages call the setting

    Raises:
        UserError: there is no such device
    """
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).tolist()
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{name} {device}: cannot be used: {reason}") from None
    return found
