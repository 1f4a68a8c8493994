"""State as JSON and tensors: what a joining worker receives and a checkpoint holds. Never pickle, because reading a
pickle runs code."""

import json
from typing import Any, Dict, List, Tuple, Union

import torch

_DTYPES = {str(t)[len("torch."):]: t for t in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool)}


def type_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype)[len("torch."):]


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def _encoded(value: Any, tensors: List[torch.Tensor], where: str) -> Any:
    if isinstance(value, torch.Tensor):
        if type_name(value) not in _DTYPES or value.layout != torch.strided:
            raise TypeError(f"{where} is a tensor of {value.dtype}, {value.layout}: it cannot be given to a joining worker")
        tensors.append(on_host(value))
        return {"tensor": [type_name(value), list(value.shape), value.device.type == "cpu"]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list":
                [_encoded(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key, tensors, where), _encoded(item, tensors, f"{where}[{key!r}]")]
                         for key, item in value.items()]}
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy
        return value.item()
    raise TypeError(f"{where} is a {type(value).__name__}: only numbers, texts, tensors, lists and dicts can be given to "
                    "a joining worker")


def without_functions(state: Dict[str, Any]) -> Dict[str, Any]:
    """A scheduler keeps functions in its state. Every worker has made its own."""
    return {key: value for key, value in state.items() if not callable(value)}


def encode(value: Any, where: str) -> Tuple[str, List[torch.Tensor]]:
    """Returns a text and the tensors that follow it."""
    tensors: List[torch.Tensor] = []
    return json.dumps(_encoded(value, tensors, where)), tensors


class _Reader:
    def __init__(self, body: memoryview, device: Union[str, torch.device]):
        self.body = body
        self.device = device
        self.at = 0

    def tensor(self, dtype: str, shape: List[int], on_cpu: bool) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=_DTYPES[dtype])
        size = tensor.numel() * tensor.element_size()
        if self.at + size > len(self.body):
            raise ValueError(f"{len(self.body)} bytes arrived, more were expected")
        if size:
            flat = tensor.view(-1).view(torch.uint8) if tensor.dim() else tensor.view(1).view(torch.uint8)
            flat.copy_(torch.frombuffer(self.body, dtype=torch.uint8, count=size, offset=self.at))
        self.at += size
        return tensor if on_cpu else tensor.to(self.device)

    def value(self, json_value: Any) -> Any:
        if not isinstance(json_value, dict):
            return json_value
        (kind, content), = json_value.items()
        if kind == "tensor":
            return self.tensor(*content)
        if kind in ("list", "tuple"):
            items = [self.value(item) for item in content]
            return items if kind == "list" else tuple(items)
        return {self.value(key): self.value(item) for key, item in content}


def decode(head: str, body: memoryview, device: Union[str, torch.device] = "cpu") -> Any:
    reader = _Reader(body, device)
    value = reader.value(json.loads(head))
    if reader.at != len(body):
        raise ValueError(f"{len(body)} bytes arrived, {reader.at} were expected")
    return value
