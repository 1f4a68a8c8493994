"""Elastic Horovod's names, for programs that have them. Change one line:

    import rubato.horovod as hvd             # was: import horovod.torch as hvd

and start the program with `rubato run --mode restart -- python3 train.py`. A resize or a death starts its workers again,
and they go on from the last commit(). Horovod itself is not needed: gradients are averaged by torch.distributed. For
resizes without a restart, use rubato.torch.

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 90):
            for x, y in loader:
                optimizer.zero_grad()
                loss_of(model(x), y).backward()
                optimizer.step()
            state.commit()

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0))

The file of the last commit is in the directory RUBATO_CHECKPOINT, or else in the working directory. It is read with
torch.load, which runs code that is in the file: use files of your own only.
"""

import functools
import os
import pathlib
import types
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch
import torch.distributed as dist


def init() -> None:
    """Joins the other workers. A program that is started by hand trains alone."""
    if dist.is_initialized():
        return
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    if os.environ["WORLD_SIZE"] == "1":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def shutdown() -> None:
    """Leaves the other workers."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """This worker's place among all."""
    return dist.get_rank()


def size() -> int:
    """The number of workers."""
    return dist.get_world_size()


def local_rank() -> int:
    """This worker's place on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def allreduce(tensor: torch.Tensor, average: bool = True, name: Optional[str] = None) -> torch.Tensor:
    """The mean, or the sum, of a tensor over all workers."""
    result = tensor.clone()
    dist.all_reduce(result)
    return result / size() if average else result


def broadcast_parameters(parameters: Any, root_rank: int = 0) -> None:
    """Gives all workers the tensors of one: a state_dict, or pairs of a name and a tensor."""
    pairs = parameters.items() if isinstance(parameters, dict) else parameters
    for _, tensor in sorted(pairs, key=lambda pair: pair[0]):
        if isinstance(tensor, torch.Tensor):
            dist.broadcast(tensor.data, root_rank)


def broadcast_object(value: Any, root_rank: int = 0) -> Any:
    """Gives all workers the object of one."""
    box = [value]
    dist.broadcast_object_list(box, root_rank)
    return box[0]


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives all workers the state of one worker's optimizer."""
    state = broadcast_object(optimizer.state_dict(), root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Any]] = None,
                         **options: Any) -> torch.optim.Optimizer:
    """The optimizer, which averages the gradients of all workers before each step. Options about compression and fusion
    are ignored."""
    plain = optimizer.step

    @functools.wraps(plain)
    def step(closure: Optional[Callable[[], Any]] = None) -> Any:
        if closure is not None:
            raise ValueError("step(closure) evaluates the loss itself: call backward(), then step()")
        gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]
                     if parameter.grad is not None]
        if size() > 1 and gradients:
            whole = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(whole)
            whole /= size()
            for gradient, part in zip(gradients, whole.split([gradient.numel() for gradient in gradients])):
                gradient.copy_(part.view_as(gradient))
        return plain()
    optimizer.step = step  # type: ignore[assignment]
    return optimizer


class TorchState:
    """What survives a resize: models, optimizers, samplers, schedulers (anything with a state_dict), and plain values.
    They are attributes: state.epoch and so on."""

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any):
        things = {"model": model, "optimizer": optimizer, **values}
        self.__dict__["_kept"] = {name: thing for name, thing in things.items()
                                  if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")}
        self.__dict__["_values"] = {name: thing for name, thing in values.items() if name not in self._kept}
        self.__dict__["_callbacks"] = []

    def __getattr__(self, name: str) -> Any:
        for held in (self.__dict__["_values"], self.__dict__["_kept"]):
            if name in held:
                return held[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Functions that run after the workers have changed, before the training goes on."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Runs the callbacks."""
        for callback in self._callbacks:
            callback()

    @staticmethod
    def _file() -> pathlib.Path:
        return pathlib.Path(os.environ.get("RUBATO_CHECKPOINT") or ".") / "horovod-state.pt"

    def commit(self) -> None:
        """Saves the state. From here, workers that are started again go on."""
        if rank() == 0:
            whole: Dict[str, Any] = {"kept": {name: thing.state_dict() for name, thing in self._kept.items()},
                                     "values": self._values}
            file = self._file()
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            torch.save(whole, part)
            os.replace(part, file)  # nobody ever sees half a file

    def check_host_updates(self) -> None:
        """Nothing to do: a resize ends the workers."""

    def restore(self) -> bool:
        """Goes back to the last commit. False if there is none."""
        if not self._file().exists():
            return False
        whole = torch.load(self._file(), map_location="cpu")
        for name, state in whole["kept"].items():
            self._kept[name].load_state_dict(state)
        self._values.update(whole["values"])
        return True

    def sync(self) -> None:
        """Gives all workers the state of the first one."""
        whole = broadcast_object({"kept": {name: thing.state_dict() for name, thing in self._kept.items()},
                                  "values": self._values})
        for name, state in whole["kept"].items():
            self._kept[name].load_state_dict(state)
        self._values.update(whole["values"])


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for the training function, whose first argument is the state. It begins from the last commit."""
    @functools.wraps(function)
    def wrapped(state: TorchState, *arguments: Any, **options: Any) -> Any:
        init()
        resumed = rank() == 0 and state.restore()
        state.sync()
        if broadcast_object(resumed):
            state.on_reset()
        return function(state, *arguments, **options)
    return wrapped


#: hvd.elastic.run and hvd.elastic.TorchState, as in Horovod.
elastic = types.SimpleNamespace(run=run, TorchState=TorchState)
