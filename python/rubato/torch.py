"""Elastic PyTorch. An ordinary training loop becomes elastic with five changed lines:

    import rubato.torch as rt
    loader = DataLoader(data, batch_size=512, shuffle=True)         # 512 is the batch of all workers together
    model, opt, sched, loader = rt.prepare(model, opt, sched, loader, clip_norm=1.0)
    for epoch in rt.epochs(90):                                     # resumes by itself
        for x, y in loader:                                         # this worker's share
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step(); sched.step()
            rt.log(loss=loss)                                       # the mean over all workers, once a step

Started by hand, the program trains alone. Started by `rubato run` or `rubato submit`, it is one of several workers, and
their number changes while they train. In both cases it trains the same model, bit for bit.

A batch is computed in leaves (virtual workers), and the body of the loop runs once for each leaf of this worker. The
optimizer and the scheduler make their step when the body of the step's last leaf has ended: opt.step() and
sched.step() only say that they should. docs/python-tutorial.md is a first walk, docs/python.md has the
rules.
"""

import contextlib
import ctypes
import math
import random
import re
import sys
import zlib
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from rubato import _group, _job, _native, _tracker
from rubato._job import Chunk, Job, Refused, held
from rubato._state import decode, encode, on_host, type_name, without_functions

try:
    from torch.optim.lr_scheduler import LRScheduler as _Scheduler  # type: ignore[attr-defined]
except ImportError:  # torch 1
    from torch.optim.lr_scheduler import _LRScheduler as _Scheduler  # type: ignore[assignment]

# Newer versions of torch have one for all devices.
_TorchScaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)

_MOST_METRICS = 16
_ONCE = "call backward() once with the sum of the losses, or write the body inside `with rt.step():`"
_training: Any = None  # what prepare() made


class StepResult:
    """A step that this worker has applied. All workers see the same, except for `leader`."""

    def __init__(self, step, epoch, samples, workers, metrics, leader):
        self.step = step
        self.epoch = epoch
        self.samples = samples
        self.workers = workers
        self.metrics = metrics
        self.leader = leader

    def __repr__(self):
        return f"step {self.step} of epoch {self.epoch} with {self.workers} workers: {self.metrics}"


# --- what is trained ----------------------------------------------------------------------------------------------


def _named(modules, method):
    """Each parameter or buffer once, with its name."""
    seen = set()
    for i, module in enumerate(modules):
        for name, tensor in getattr(module, method)():
            if id(tensor) in seen:
                continue
            seen.add(id(tensor))
            yield (name if len(modules) == 1 else f"{i}.{name}"), tensor


class _Parameter:
    def __init__(self, name, tensor, optimizer, trained):
        self.name = name
        self.tensor = tensor
        self.optimizer = optimizer
        self.trained = trained  # its index in the reduced vector; None = frozen
        self.node = None  # of autograd; it is kept alive for the hook on it
        self.hook = None


class _Buffer:
    """A buffer of a module (batch-norm statistics). It belongs to the step, not to the leaf: every leaf starts from its
    value at the start of the step, and the step changes it by the weighted mean of the changes in the leaves."""

    def __init__(self, name, tensor, offset):
        self.name = name
        self.tensor = tensor
        self.offset = offset  # in the tail
        self.start = on_host(tensor).clone()

    def restore(self):
        self.tensor.copy_(self.start)

    def change(self, weight):
        after = on_host(self.tensor)
        # Integers are subtracted as integers, because a large one has no exact double.
        wide = torch.float64 if after.is_floating_point() else torch.int64
        change = (after.to(wide) - self.start.to(wide)).double() * weight
        # A buffer may hold infinities, as masks do.
        return torch.where(after == self.start, 0.0, change).float().view(-1)

    def move(self, change):
        change = change.view(self.start.shape).double()
        if self.start.is_floating_point():
            self.start.copy_(self.start.double() + change)
        else:
            # A counter that every leaf increments by one changes by the sum of the weights. That is one, apart from
            # rounding.
            self.start.copy_(self.start.long() + change.round().long())
        self.restore()


def _check_module(module):
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            raise Refused(f"{name or 'the model'} is a SyncBatchNorm, which communicates by itself: use BatchNorm; "
                             "its statistics are the same on all workers here")


def _check_parameter(name, tensor):
    if tensor.dtype != torch.float32:
        raise Refused(f"parameter {name} is {type_name(tensor)}: gradients are added up in float32, so make every "
                         "parameter float32")
    if tensor.layout != torch.strided or not tensor.is_contiguous():
        raise Refused(f"parameter {name} is not contiguous in memory: create it contiguous")


def _check_optimizer(optimizer):
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Refused("the optimizer is LBFGS, which evaluates the loss itself: use one that makes one step for one "
                         "gradient")


class GradScaler:
    """Scales the loss, so that small gradients do not vanish in fp16. It has the methods of torch.cuda.amp.GradScaler, and
    prepare() makes one out of that. Whether a gradient has overflowed is judged after the reduction, so it is the same
    on all workers: then the step is skipped and the scale falls. The scale is part of what joining workers and
    checkpoints get."""

    def __init__(self, init_scale=2.0 ** 16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor, self._interval = growth_factor, backoff_factor, growth_interval
        self._finite_steps = 0

    @classmethod
    def of(cls, scaler):
        return cls(scaler.get_scale(), scaler.get_growth_factor(), scaler.get_backoff_factor(),
                   scaler.get_growth_interval())

    def scale(self, loss):
        return loss * self._scale

    def unscale_(self, optimizer):
        raise RuntimeError("unscale_() in the loop would see the gradient of a part of the batch: say "
                           "prepare(..., clip_norm=...), which clips after the reduction")

    def step(self, optimizer, *arguments, **options):
        optimizer.step()  # only says that the step should be made

    def update(self, new_scale=None):
        if new_scale is not None:
            raise ValueError("update() takes no scale here: it follows the gradients")

    def get_scale(self):
        return self._scale

    def is_enabled(self):
        return True

    def judge(self, finite):
        """After each step, on every worker."""
        self._finite_steps = self._finite_steps + 1 if finite else 0
        if not finite:
            self._scale *= self._backoff_factor
        elif self._finite_steps == self._interval:
            self._scale *= self._growth_factor
            self._finite_steps = 0

    def state_dict(self):
        return {"scale": self._scale, "finite_steps": self._finite_steps}

    def load_state_dict(self, state):
        self._scale, self._finite_steps = state["scale"], state["finite_steps"]


def _out_of_memory(error):
    known = getattr(torch.cuda, "OutOfMemoryError", None)
    return (isinstance(error, MemoryError) or known is not None and isinstance(error, known)
            or isinstance(error, RuntimeError) and re.search("out of memory|can't allocate memory", str(error)) is not None)


class _Training(_job.Model):
    """The modules, optimizers, schedulers and the loader of a program, as a job sees them."""

    def __init__(self, modules, optimizers, schedulers, scaler, loader, settings):
        self.scaler = scaler
        self.largest_part = settings["largest_part"]
        self.modules, self.optimizers, self.schedulers = modules, optimizers, schedulers
        self.settings = settings
        self.registered = {}
        self.on_resize, self.on_step = [], []
        self.trackers = _tracker.Trackers()
        self.job = None
        self.rank, self.size = 0, 1
        self.working = False  # a worker that joins applies steps of others first
        self.leaf = None  # the leaf at hand
        self.computing = False  # the body of the loop runs
        self.stepped = False  # the body has called step()
        self.too_large = None  # the error of a part that did not fit into the memory
        self.whole_body = False  # the body is written inside of `with step():`
        self.kept_back = False  # gradients are given away when the leaf is complete, so a part can be given up
        self.most_fitted = 0  # samples that a body has computed without running out of memory
        self.arrived = {}  # gradients of the part, by parameter
        self.deposited = set()  # parameters whose gradients of this leaf are given away
        self.before_part = None  # the buffers when the part began, if it is not the first of the leaf
        self.gathered = {}  # gradients of the leaf that were kept back
        self.metric_names = list(settings["metrics"])
        self.names_fixed = False
        self.logged = {}
        self.last_metrics = {}
        self.last_rate = None
        self.kept = []  # tensors that chunks on their way point into
        self.reducer = None
        self._adopt_parameters()
        self._adopt_buffers()
        self._mark_steps()
        self.loader = Loader(self, loader)

    # --- beginnings ---

    def _adopt_parameters(self):
        owner = {}
        for optimizer in self.optimizers:
            _check_optimizer(optimizer)
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    owner[id(tensor)] = optimizer
        self.parameters, self.trained = [], []
        for name, tensor in _named(self.modules, "named_parameters"):
            _check_parameter(name, tensor)
            optimizer = owner.pop(id(tensor), None)
            if tensor.requires_grad and optimizer is None:
                raise Refused(f"no group of an optimizer holds parameter {name}: give it to the optimizer or freeze it "
                                 "with requires_grad_(False)")
            parameter = _Parameter(name, tensor, optimizer, len(self.trained) if tensor.requires_grad else None)
            self.parameters.append(parameter)
            if tensor.requires_grad:
                self.trained.append(parameter)
                self._hook(parameter)
        if owner:
            raise Refused("the optimizer holds a tensor that is no parameter of the model: register it with the model")
        if not self.trained:
            raise Refused("the model has no parameter to train")
        self.device = self.trained[0].tensor.device

    def _hook(self, parameter):
        """Calls _gradient_arrived() when autograd has stored the gradient of the parameter."""
        tensor = parameter.tensor
        if hasattr(tensor, "register_post_accumulate_grad_hook"):
            parameter.hook = tensor.register_post_accumulate_grad_hook(lambda _: self._gradient_arrived(parameter))
            return
        with torch.enable_grad():
            parameter.node = tensor.expand_as(tensor).grad_fn.next_functions[0][0]
        parameter.hook = parameter.node.register_hook(lambda *_: self._gradient_arrived(parameter))

    def _adopt_buffers(self):
        self.buffers = []
        offset = 1 + 2 * _MOST_METRICS  # after the loss and the metrics with their weights
        for name, tensor in _named(self.modules, "named_buffers"):
            if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_complex():
                raise Refused(f"buffer {name} is not a contiguous tensor of real numbers: only those can be averaged "
                                 "over workers")
            self.buffers.append(_Buffer(name, tensor, offset))
            offset += tensor.numel()
        self.tail = torch.zeros(offset)

    def _mark_steps(self):
        """From now on step() of an optimizer or scheduler in the loop says only that the step should be made. Workers
        that join make the steps, too, and do not run the loop meanwhile."""
        self.optimizer_steps = [optimizer.step for optimizer in self.optimizers]
        for optimizer in self.optimizers:
            def marked(closure=None, _optimizer=optimizer):
                if closure is not None:
                    raise ValueError("step(closure) evaluates the loss itself: call backward(), then step()")
                self.mark("opt.step()")
                if self.whole_body:  # a later backward pass may reach these parameters again
                    self._take(parameter for parameter in self.trained if parameter.optimizer is _optimizer)
            marked._with_counter = marked._wrapped_by_lr_sched = True  # schedulers of torch 1 and 2 look for it
            optimizer.step = marked
        for scheduler in self.schedulers:
            training, plain = self, type(scheduler)

            def step(_self, *arguments, _training=training):
                _training.scheduler_called(arguments)
            scheduler.__class__ = type(plain.__name__, (plain,), {"step": step, "__module__": plain.__module__,
                                                                  "_rubato_step": plain.step})

    def mark(self, what):
        if not self.computing:
            raise RuntimeError(f"{what} was called outside of the loop over the loader, where no gradient is computed")
        self.stepped = True

    def scheduler_called(self, arguments):
        if arguments:
            raise ValueError("sched.step() takes no argument here: schedules are functions of the step")
        if self.computing == (self.settings["schedule"] == "step"):
            return
        said = self.settings["schedule"]
        other = "epoch" if said == "step" else "step"
        raise RuntimeError(f"the scheduler is stepped once per {other}, but prepare() was told once per {said}: say "
                           f"prepare(..., schedule={other!r})")

    def start(self, epochs, steps):
        if self.job is not None:
            raise RuntimeError("epochs() was called twice; a job has one sequence of epochs")
        chosen = self.settings
        sampling = self.loader.sampling
        options = {
            "samples": sampling.samples, "batch": sampling.batch, "shuffle": sampling.shuffle,
            "drop_last": sampling.drop_last, "epochs": epochs or 0, "steps": steps or 0,
            "parameters": [p.tensor.numel() for p in self.trained], "tail": self.tail.numel(),
            "chunks": self.chunk_count(), "schema": self.schema(), "build": _build() + self._reduction(),
            "group": chosen["reduction"] != "exact", "may_overflow": self.scaler is not None, "warm_up": True,
            **{name: chosen[name] for name in
               ("seed", "virtual_workers", "adaptive", "largest_batch", "largest_per_worker", "checkpoint",
                "checkpoint_steps", "checkpoint_seconds", "digest_steps", "bucket_bytes", "measure_noise",
                "learning_rate_rule") if chosen.get(name) is not None}}
        if "learning_rate_rule" not in options and "Adam" in type(self.optimizers[0]).__name__:
            options["learning_rate_rule"] = "adascale_adam"
        self.job = Job(self, options)
        if options["group"]:
            self.reducer = _group.Reducer(self.job, chosen["reduction"], chosen["bucket_bytes"] // 4, self.device)
        self.offsets = [self.job.offset(i) for i in range(len(self.trained))]

    def _reduction(self):
        chosen = self.settings["reduction"]
        return "" if chosen == "exact" else f", reduction {chosen}"

    def schema(self):
        described = "+".join(type(optimizer).__name__ for optimizer in self.optimizers)
        if self.registered:
            described += ", registered: " + ", ".join(self.registered)
        return {"optimizer": described, "bucket_floats": self.settings["bucket_bytes"] // 4,
                "parameters": [{"name": p.name, "shape": list(p.tensor.shape), "dtype": type_name(p.tensor),
                                "trained": p.trained is not None} for p in self.parameters],
                "buffers": [{"name": b.name, "shape": list(b.tensor.shape), "dtype": type_name(b.tensor)}
                            for b in self.buffers]}

    # --- a leaf ---

    def peek(self):
        """The leaf that this worker computes next. None at the end."""
        if self.leaf is None:
            self.leaf = self.job.next()
            if self.leaf is None:
                self.trackers.close()
            if self.leaf is None and self.job.end != 0:
                self.loader.stop_workers()
                raise SystemExit(self.job.end)
        return self.leaf

    def warm_up(self, leaf):
        """In the first pass the loader starts its processes, a library chooses its kernels, and memory is touched for the first
        time. The body of the loop cannot run yet, because the epoch is not known. So the first model computes the first
        thing of a batch. If it wants something else, its first pass comes with its first leaf."""
        self.leaf = leaf
        try:
            given = self.loader.rehearse(leaf)
            self.begin_leaf()
            self.begin_part(0, 1, len(leaf.indices))
            self.kept_back = False
            _differentiable(_called(self.modules[0], given, self.device)).mean().backward()
            self.job.leaf_done(self.tail.data_ptr(), self.tail.numel())
            if self.too_large is None:
                self.most_fitted = len(leaf.indices)
        except Exception:  # pylint: disable=broad-except
            pass  # what is wrong with a real leaf is said there
        self.computing, self.too_large, self.leaf = False, None, None
        self.begin_leaf()

    def begin_leaf(self):
        with torch.no_grad():
            for buffer in self.buffers:
                buffer.restore()
        for parameter in self.trained:
            parameter.tensor.grad = None
        self.logged = {}
        self.gathered = {}
        self.deposited = set()

    def begin_part(self, number, share, samples):
        """The body of the loop begins. It computes this share of the leaf."""
        self.share = share
        self.said, self.arrived = {}, {}
        self.computing, self.stepped, self.whole_body = True, False, False
        self.kept_back = share < 1 or samples > self.most_fitted
        self.before_part = [on_host(buffer.tensor).clone() for buffer in self.buffers] if number else None
        _seed_all((self.leaf.seed + number) & 0xFFFFFFFFFFFFFFFF)

    def end_part(self, samples):
        self.computing = False
        if not self.stepped:
            raise RuntimeError("the body of the loop ended without opt.step(): call it in every pass. The loader already "
                               "gives parts of one batch, whose gradients are added up for you")
        self.most_fitted = max(self.most_fitted, samples)
        for name, value in self.said.items():
            total, weight = self.logged.get(name, (0.0, 0.0))
            self.logged[name] = (total + value * self.share, weight + self.share)
        if self.whole_body:
            self._take(parameter for parameter in self.trained if parameter.trained not in self.arrived)
        for i, gradient in self.arrived.items():
            if self.share < 1:
                gradient = gradient * self.share
            self.gathered[i] = gradient if i not in self.gathered else self.gathered[i].add_(gradient)
        self.arrived = {}

    def _take(self, parameters):
        """Moves gradients out of .grad, so that nothing that follows in the body changes them."""
        for parameter in parameters:
            gradient, parameter.tensor.grad = parameter.tensor.grad, None
            if gradient is not None:
                if parameter.trained in self.arrived:
                    advice = "an optimizer makes one step in the body" if self.whole_body else _ONCE
                    raise RuntimeError(f"parameter {parameter.name} has a second gradient: {advice}")
                self.arrived[parameter.trained] = gradient

    def give_up_part(self, samples):
        """The part did not fit. From now on, none has more than half of its samples."""
        error, self.too_large, self.computing = self.too_large, None, False
        self.arrived = {}
        for parameter in self.trained:
            parameter.tensor.grad = None
        with torch.no_grad():
            for i, buffer in enumerate(self.buffers):
                buffer.tensor.copy_(self.before_part[i] if self.before_part is not None else buffer.start)
        if samples == 1:
            raise RuntimeError("one sample does not fit into the memory") from error
        self.largest_part = (samples + 1) // 2
        text = (f"{samples} samples do not fit into the memory ({str(error).splitlines()[0] if str(error) else 'no reason'}): "
                f"this worker computes {self.largest_part} at a time from now on, and adds up their gradients")
        print(f"rubato train: {text}", file=sys.stderr, flush=True)
        self.job.notice("halved", text)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _gradient_arrived(self, parameter):
        if not self.computing or self.whole_body:
            return
        if self.kept_back:
            self._take([parameter])
        else:
            self._deposit(parameter, parameter.tensor.grad)
            parameter.tensor.grad = None  # the next gradient uses its memory

    def _deposit(self, parameter, gradient):
        if gradient.layout != torch.strided:
            raise RuntimeError(f"the gradient of parameter {parameter.name} is sparse, and sparse gradients cannot be added "
                               "up in a fixed order here: create the layer with sparse=False")
        host = on_host(gradient)
        if not self.job.gradient(parameter.trained, host.data_ptr(), host.numel()):
            raise RuntimeError(f"{self.job.problem()} ({parameter.name}): {_ONCE}")
        self.deposited.add(parameter.trained)

    def end_leaf(self):
        for i, gradient in self.gathered.items():
            # What the whole leaf had given away before it ran out of memory is complete.
            if i not in self.deposited:
                self._deposit(self.trained[i], gradient)
        self.gathered = {}
        self._fill_tail()
        self.job.leaf_done(self.tail.data_ptr(), self.tail.numel())
        self.leaf = None

    def _fill_tail(self):
        weight = self.leaf.weight
        self.tail[:1 + 2 * _MOST_METRICS] = 0
        self._fix_names()
        for name, (total, share) in self.logged.items():
            place = 1 + 2 * self.metric_names.index(name)
            self.tail[place] = total * weight
            self.tail[place + 1] = share * weight
        self.tail[0] = self.logged.get("loss", (0.0, 0.0))[0] * weight
        for buffer in self.buffers:
            self.tail[buffer.offset:buffer.offset + buffer.start.numel()] = buffer.change(weight)

    def _fix_names(self):
        """All workers must agree on the order of the metrics. The first leaf of the job, which one worker computes,
        fixes it. Joining workers receive it."""
        if not self.names_fixed:
            self.metric_names += [name for name in self.logged if name not in self.metric_names]
            self.names_fixed = True
            if len(self.metric_names) > _MOST_METRICS:
                raise ValueError(f"log() was given {len(self.metric_names)} names; {_MOST_METRICS} is the most")
        for name in self.logged:
            if name not in self.metric_names:
                raise ValueError(f"log({name}=...) was not called in the first batch of the job: name it in "
                                 f"prepare(..., metrics=[{name!r}])")

    # --- a step ---

    def apply(self, step):
        vector = torch.frombuffer((ctypes.c_float * step.floats).from_address(step.result), dtype=torch.float32)
        tail = vector[self.job.tail_offset:]
        finite = self.scaler is None or bool(torch.isfinite(vector[:self.job.tail_offset]).all())
        with torch.no_grad():
            if finite:
                self._set_gradients(step, vector, self._factor(step))
                self._step_optimizers(step.learning_rate_factor)
            for parameter in self.trained:
                parameter.tensor.grad = None
            if held(step, self._buffers_chunk()):
                for buffer in self.buffers:
                    buffer.move(tail[buffer.offset:buffer.offset + buffer.start.numel()])
        if finite and held(step, 0) and (self.settings["schedule"] == "step" or step.ends_epoch):
            for scheduler in self.schedulers:
                type(scheduler)._rubato_step(scheduler)
        if self.scaler is not None and held(step, 0):
            self.scaler.judge(finite)
        self._report(tail)
        if not step.held:
            result = StepResult(step.step, step.epoch, step.samples, step.workers, self.last_metrics,
                                self.working and self.rank == 0)
            self.trackers.step(result.step, result.workers, result.metrics, result.leader)
            for function in self.on_step:
                function(result)

    def _factor(self, step):
        """Undoes the scaling of the loss, and clips: by the norm of the whole vector, measured in one order, so that it does
        not depend on the workers. A joining worker, which has only some of the parameters, measures the whole vector, too."""
        scale = 1.0 if self.scaler is None else 1.0 / self.scaler.get_scale()
        clip = self.settings["clip_norm"]
        if clip is None:
            return scale
        norm = scale * math.sqrt(_native.library.rubato_squared_norm(step.result, self.job.tail_offset))
        return scale * min(1.0, clip / (norm + 1e-6))

    def _set_gradients(self, step, vector, scale):
        for index, parameter in enumerate(self.parameters):
            if parameter.trained is None or not held(step, 1 + index):
                continue  # optimizers skip parameters without a gradient
            offset = self.offsets[parameter.trained]
            gradient = vector[offset:offset + parameter.tensor.numel()]
            if scale != 1.0:
                gradient = gradient * scale
            elif not type(parameter.optimizer).__module__.startswith("torch.optim"):
                gradient = gradient.clone()  # it may change its gradient; others may still need the result
            parameter.tensor.grad = gradient.view(parameter.tensor.shape).to(parameter.tensor.device)

    def _step_optimizers(self, factor):
        rate = float(self.optimizers[0].param_groups[0]["lr"]) * factor
        self.last_rate = rate if math.isfinite(rate) else None
        for optimizer, step in zip(self.optimizers, self.optimizer_steps):
            rates = [group["lr"] for group in optimizer.param_groups]
            if factor != 1:
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate * factor
            step()
            if factor != 1:
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate

    def _report(self, tail):
        metrics = {}
        for i, name in enumerate(self.metric_names):
            total, weight = tail[1 + 2 * i].item(), tail[2 + 2 * i].item()
            if weight > 0:
                metrics[name] = total / weight
        self.last_metrics = metrics
        told = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        # A loss that nobody has logged is unknown, not zero.
        self.job.report({"loss": told.get("loss"), "metrics": told, "learning_rate": self.last_rate})

    def reduce(self, group, address, floats):
        vector = torch.frombuffer((ctypes.c_float * floats).from_address(address), dtype=torch.float32)
        return self.reducer.reduce(group.name.decode(), group.rank, group.size, vector)

    def interrupted(self):
        if self.reducer is not None:
            self.reducer.free()

    def members(self, rank, size):
        self.rank, self.size, self.working = rank, size, True
        for function in self.on_resize:
            function()

    # --- the state, in chunks: the groups and schedules first, because the others need the learning rate of a step ---

    def chunk_count(self):
        return 1 + len(self.parameters) + 1 + len(self.registered)

    def _buffers_chunk(self):
        return 1 + len(self.parameters)

    def chunk(self, index):
        head, tensors = encode(*self._content(index))
        self.kept += tensors
        return Chunk(head, [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors])

    def release(self):
        self.kept.clear()

    def _content(self, index):
        if index == 0:
            groups = [[{key: value for key, value in group.items() if key != "params"}
                       for group in optimizer.param_groups] for optimizer in self.optimizers]
            schedules = [without_functions(scheduler.state_dict()) for scheduler in self.schedulers]
            return {"groups": groups, "schedules": schedules, "metrics": list(self.metric_names),
                    "named": self.names_fixed, "scaler": self.scaler.state_dict() if self.scaler else None,
                    }, "the optimizer's settings"
        if index <= len(self.parameters):
            parameter = self.parameters[index - 1]
            state = parameter.optimizer.state.get(parameter.tensor) if parameter.optimizer else None
            return {"value": parameter.tensor, "state": state}, f"the optimizer's state of {parameter.name}"
        if index == self._buffers_chunk():
            return [buffer.start for buffer in self.buffers], "a buffer"
        name, item = list(self.registered.items())[index - self._buffers_chunk() - 1]
        return item.state_dict(), f"the state of {name}"

    def load_chunk(self, index, head, body):
        value = decode(head, body, self.device)
        with torch.no_grad():
            if index == 0:
                self._load_settings(value)
            elif index <= len(self.parameters):
                self._load_parameter(self.parameters[index - 1], value)
            elif index == self._buffers_chunk():
                for buffer, start in zip(self.buffers, value, strict=True):
                    buffer.start.copy_(start)
                    buffer.restore()
            else:
                list(self.registered.values())[index - self._buffers_chunk() - 1].load_state_dict(value)

    def _load_settings(self, value):
        for optimizer, groups in zip(self.optimizers, value["groups"], strict=True):
            for group, settings in zip(optimizer.param_groups, groups, strict=True):
                group.update(settings)
        for scheduler, state in zip(self.schedulers, value["schedules"], strict=True):
            scheduler.load_state_dict({**scheduler.state_dict(), **state})
        self.metric_names, self.names_fixed = value["metrics"], value["named"]
        if self.scaler is not None and value.get("scaler") is not None:
            self.scaler.load_state_dict(value["scaler"])

    @staticmethod
    def _load_parameter(parameter, value):
        parameter.tensor.copy_(value["value"])
        if parameter.optimizer is None:
            return
        if value["state"] is None:
            parameter.optimizer.state.pop(parameter.tensor, None)
        else:
            parameter.optimizer.state[parameter.tensor] = value["state"]


def _called(module, given, device):
    """The output for a batch as loaders make them: inputs before labels, or inputs by name."""
    def moved(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value
    if isinstance(given, dict):
        return module(**{name: moved(value) for name, value in given.items()})
    return module(moved(given[0] if isinstance(given, (tuple, list)) else given))


def _differentiable(output):
    """The first tensor in the output of a model that has a gradient."""
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad else None
    items = output.values() if isinstance(output, dict) else output
    return next(tensor for tensor in map(_differentiable, items) if tensor is not None)


def _build():
    """What must be equal in all workers for equal bits."""
    capability = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    return (f"rubato for Python 1, torch {torch.__version__}, {torch.get_num_threads()} threads, "
            f"{capability[1] if capability else 'unknown'} instructions")


def _seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)


# --- data ---------------------------------------------------------------------------------------------------------


class _Stream(Dataset):
    """An IterableDataset that can begin anywhere. Leaves are ranges of its samples, so it rarely has to begin anew."""

    def __init__(self, dataset):
        self.dataset = dataset
        self.iterator, self.at = None, None  # what it gives next

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        if index != self.at:
            self.iterator = iter(self.dataset.from_sample(index))
        try:
            sample = next(self.iterator)
        except StopIteration:
            raise RuntimeError(f"the data set ended before sample {index}, but its len() is {len(self)}") from None
        self.at = index + 1
        return sample


class _Seeded(Dataset):
    """The program's data set. The random numbers of a batch (augmentation) depend on its place among all batches alone,
    not on the process that loads it: its first sample brings the seed."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, key):
        seed, index = key
        if seed is not None:
            _seed_all(seed)
        return self.dataset[index]


class _Sampling:
    """How the program's DataLoader takes its samples."""

    def __init__(self, loader):
        if not isinstance(loader, DataLoader):
            raise Refused(f"the loader is a {type(loader).__name__}; prepare() takes a torch.utils.data.DataLoader")
        self.dataset = loader.dataset
        stream = isinstance(loader.dataset, IterableDataset)
        if stream:
            if not hasattr(loader.dataset, "from_sample") or not hasattr(loader.dataset, "__len__"):
                raise Refused("the data set is an IterableDataset that cannot begin anywhere, so its samples cannot be "
                              "shared when workers come and go: give it from_sample(i), which iterates from sample i on, and "
                              "__len__, or use one with __getitem__ and __len__")
            self.dataset = _Stream(loader.dataset)
        if loader.batch_size is None:
            raise Refused("the loader has a batch sampler of its own: give it batch_size, which is the batch of all "
                             "workers together")
        sampler = loader.sampler
        shuffled = type(sampler) is RandomSampler and not sampler.replacement
        if not stream and not shuffled and type(sampler) is not SequentialSampler:
            raise Refused(f"the loader has a {type(sampler).__name__}: use shuffle=True or shuffle=False; the prepared "
                             "loader gives every worker its share")
        self.samples = len(loader.dataset)
        self.batch = loader.batch_size
        self.shuffle = shuffled
        self.drop_last = loader.drop_last


class _Ahead:
    """The batch sampler of the inner DataLoader: this worker's leaves, as far ahead as its processes want them."""

    def __init__(self, training):
        self.training = training
        self.place = None  # of the leaf to give next
        self.indices = None
        self.given = []

    def rehearse(self, indices):
        """The same batch again and again."""
        self.place, self.indices = None, indices

    def restart(self, leaf):
        self.place = _native.Place.from_buffer_copy(leaf.place)
        self.indices = leaf.indices
        self.given = []

    def __iter__(self):
        while True:
            yield self.take()

    def take(self):
        if self.place is None:
            return [(None, index) for index in self.indices]
        seed = _leaf_seed(self.training, self.place)
        batch = [(seed if i == 0 else None, index) for i, index in enumerate(self.indices)]
        self.given.append(self.place.key())
        memory = (ctypes.c_int64 * max(1, self.training.loader.sampling.batch, self.place.samples))()
        self.training.job.leaf_after(self.place, memory)
        self.indices = memory[:self.place.count]
        return batch


def _leaf_seed(training, place):
    return zlib.crc32(repr((training.settings["seed"], place.key())).encode())


def _split(indices, most):
    most = most or len(indices)
    return [indices[at:at + most] for at in range(0, len(indices), most)]


class Loader:
    """A DataLoader that gives this worker's share of each batch. prepare() makes it."""

    def __init__(self, training, loader):
        self.training = training
        self.sampling = _Sampling(loader)
        self.dataset = loader.dataset
        self.batch_size = loader.batch_size
        self._ahead = _Ahead(training)
        workers = loader.num_workers
        more = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": True,
                "multiprocessing_context": loader.multiprocessing_context} if workers else {}
        self._inner = DataLoader(_Seeded(self.sampling.dataset), batch_sampler=self._ahead, num_workers=workers,
                                 collate_fn=loader.collate_fn, pin_memory=loader.pin_memory, timeout=loader.timeout,
                                 worker_init_fn=loader.worker_init_fn, **more)
        self._batches = None

    def __len__(self):
        """Steps in an epoch."""
        whole, rest = divmod(self.sampling.samples, self.sampling.batch)
        return whole + (1 if rest and not self.sampling.drop_last else 0)

    def __iter__(self):
        training = self.training
        if training.job is None:
            raise RuntimeError("the prepared loader gives batches inside of `for epoch in rt.epochs(...)` only")
        leaf = training.peek()
        epoch = leaf.epoch if leaf is not None else None
        while leaf is not None and leaf.epoch == epoch:
            batch = self._fetch(leaf)
            training.begin_leaf()
            yield from self._parts(leaf, batch)
            training.end_leaf()
            leaf = training.peek()

    def _parts(self, leaf, batch):
        """The leaf's batch, or parts of it if it does not fit into the memory."""
        training, whole = self.training, len(leaf.indices)
        waiting, number = _split(leaf.indices, training.largest_part), 0
        while waiting:
            indices = waiting.pop(0)
            training.begin_part(number, len(indices) / whole, len(indices))
            yield batch if len(indices) == whole else self._load(leaf, indices)
            if training.too_large is None:
                training.end_part(len(indices))
                number += 1
            else:
                batch = None
                training.give_up_part(len(indices))
                waiting = _split(indices + [index for part in waiting for index in part], training.largest_part)

    def rehearse(self, leaf):
        """A batch before the first real one. It starts the processes of the loader, which then stay."""
        self._ahead.rehearse(leaf.indices)
        return next(iter(self._inner))

    def _load(self, leaf, indices):
        seed = _leaf_seed(self.training, leaf.place)
        return self._inner.collate_fn([self._inner.dataset[(seed if i == 0 else None, index)]
                                       for i, index in enumerate(indices)])

    def _fetch(self, leaf):
        """The leaf's batch. What was prefetched for a plan that did not come true is thrown away."""
        ahead = self._ahead
        if self._batches is None or (ahead.given and ahead.given[0] != leaf.place.key()):
            ahead.restart(leaf)
            self._batches = iter(self._inner)
        elif not ahead.given:  # nothing is prefetched
            ahead.restart(leaf)
        batch = next(self._batches)
        ahead.given.pop(0)
        return batch

    def stop_workers(self):
        self._batches = None
        self._inner._iterator = None


# --- what programs use --------------------------------------------------------------------------------------------


def prepare(*things: Any, clip_norm: Optional[float] = None, virtual_workers: int = 8, seed: int = 1, schedule: str = "step",
            metrics: Sequence[str] = (), checkpoint: Optional[str] = None, adaptive: Optional[bool] = None,
            largest_batch: Optional[int] = None, largest_per_worker: Optional[int] = None,
            learning_rate_rule: Optional[str] = None, measure_noise: Optional[bool] = None,
            digest_steps: Optional[int] = None, bucket_bytes: int = 8 << 20, reduction: str = "exact",
            largest_part: Optional[int] = None) -> Tuple[Any, ...]:
    """Makes models, optimizers, schedulers and one DataLoader elastic, and returns them in the same order.

    The loader's batch_size is the batch of all workers together. It is computed in `virtual_workers` leaves, for any
    number of workers; so no more workers than that can share the work.

    clip_norm           clips the gradient of the whole batch by its norm. (clip_grad_norm_ in the loop would see the
                        gradient of a leaf, or nothing.)
    schedule            "step" or "epoch": when the program calls sched.step()
    metrics             names for log() that the first batch does not log
    checkpoint          a directory to save to and resume from; a job of the live cluster has one
    reduction           "exact": the model is the same, bit for bit, for any number of workers. "gloo" or "nccl": gradients
                        are summed by a process group of torch.distributed, which is formed anew when the members change;
                        the same samples and the same batch, but other last bits for another number of workers
    largest_part        the most samples that the body of the loop computes at a time. What does not fit into the memory is
                        halved in any case
    adaptive            True: batch and learning rate follow the gradient noise and the measured speed (docs/goodput.md)
    """
    global _training
    if _training is not None:
        raise RuntimeError("prepare() was called twice; give it everything at once")
    if schedule not in ("step", "epoch"):
        raise Refused(f"schedule is {schedule!r}; it must be 'step' or 'epoch'")
    if reduction not in ("exact", "gloo", "nccl"):
        raise Refused(f"reduction is {reduction!r}; it must be 'exact', 'gloo' or 'nccl'")
    if largest_part is not None and largest_part < 1:
        raise Refused(f"largest_part is {largest_part}; use 1 or more")
    settings = dict(largest_part=largest_part, reduction=reduction, clip_norm=clip_norm, virtual_workers=virtual_workers,
                    seed=seed, schedule=schedule,
                    metrics=list(metrics), checkpoint=checkpoint, adaptive=adaptive, largest_batch=largest_batch,
                    largest_per_worker=largest_per_worker, learning_rate_rule=learning_rate_rule,
                    measure_noise=measure_noise, digest_steps=digest_steps, bucket_bytes=bucket_bytes)
    kinds: Dict[str, Any] = {"modules": [], "optimizers": [], "schedulers": [], "scalers": [], "loaders": [], "idle": []}
    things = tuple(_our_scaler(thing) for thing in things)
    for thing in things:
        kinds[_kind_of(thing)].append(thing)
    if len(kinds["scalers"]) > 1:
        raise Refused("prepare() takes one GradScaler")
    if not kinds["modules"] or not kinds["optimizers"] or len(kinds["loaders"]) != 1:
        raise Refused("prepare() takes at least one model and one optimizer, and exactly one loader")
    for module in kinds["modules"]:
        _check_module(module)
    training = _Training(kinds["modules"], kinds["optimizers"], kinds["schedulers"], (kinds["scalers"] or [None])[0],
                         kinds["loaders"][0], settings)
    _guard_clipping(training)
    _guard_memory(training)
    _training = training
    return tuple(training.loader if thing is kinds["loaders"][0] else thing for thing in things)


def _our_scaler(thing):
    """torch's own judges overflows by itself. If it is not enabled, it does nothing and stays."""
    return GradScaler.of(thing) if isinstance(thing, _TorchScaler) and thing.is_enabled() else thing


def _kind_of(thing):
    if isinstance(thing, GradScaler):
        return "scalers"
    if isinstance(thing, _TorchScaler):
        return "idle"
    if isinstance(thing, torch.nn.Module):
        return "modules"
    if isinstance(thing, torch.optim.Optimizer):
        return "optimizers"
    if isinstance(thing, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise Refused("ReduceLROnPlateau looks at a metric, and joining workers do not have its history: use a schedule "
                         "that is a function of the step")
    if isinstance(thing, _Scheduler):
        return "schedulers"
    if hasattr(thing, "dataset") or hasattr(thing, "__iter__"):
        return "loaders"
    raise Refused(f"prepare() does not know what to do with a {type(thing).__name__}")


def _guard_clipping(training):
    """Gradients leave .grad as soon as they are computed, so clipping in the loop would silently do nothing."""
    ours = {id(parameter.tensor) for parameter in training.trained}
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        plain = getattr(torch.nn.utils, name)

        def guarded(parameters, *arguments, _plain=plain, _name=name, **options):
            tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            if any(id(tensor) in ours for tensor in tensors):
                raise RuntimeError(f"{_name}() in the loop would clip the gradient of a part of the batch: say "
                                   "prepare(..., clip_norm=...) instead")
            return _plain(tensors, *arguments, **options)
        setattr(torch.nn.utils, name, guarded)


def _guard_memory(training):
    """A body that is not written inside of `with step():` must run to its end even if a model or backward() runs out of
    memory, because a loop cannot go back to its beginning. So the body gets what it would have got, but no gradient,
    and then it runs again with half of the samples. Functions of torch are replaced and not those of the models: a
    program may copy or save its models."""
    ours = {id(module) for module in training.modules}
    call, backward = torch.nn.Module.__call__, torch.autograd.backward

    def guarded_call(module, *arguments, **options):
        if id(module) not in ours or not training.computing or training.whole_body:
            return call(module, *arguments, **options)
        try:
            return call(module, *arguments, **options)
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error) or not torch.is_grad_enabled():
                raise
            training.too_large = _without_frames(error)
        return _in_parts(lambda *a, **o: call(module, *a, **o), arguments, options, training.too_large)

    def guarded_backward(*arguments, **options):
        try:
            return backward(*arguments, **options)
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error) or not training.computing or training.whole_body:
                raise
            training.too_large = _without_frames(error)
    torch.nn.Module.__call__ = guarded_call  # type: ignore[method-assign]
    torch.autograd.backward = guarded_backward


def _without_frames(error):
    """The frames of a traceback keep tensors alive."""
    return error.with_traceback(None)


def _in_parts(function, arguments, options, error):
    """What the function returns, computed without gradients and for as few samples at a time as the memory needs. A tensor
    has a sample in each row if it has as many rows as the first tensor among the arguments."""
    rows = next((len(value) for value in [*arguments, *options.values()]
                 if isinstance(value, torch.Tensor) and value.dim() > 0), 0)

    def part_of(value, at, size):
        return value[at:at + size] if isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == rows else value
    size = rows
    while size > 1:
        size = (size + 1) // 2
        try:
            with torch.no_grad():
                results = [function(*[part_of(value, at, size) for value in arguments],
                                    **{name: part_of(value, at, size) for name, value in options.items()})
                           for at in range(0, rows, size)]
            return _joined(results, [min(size, rows - at) / rows for at in range(0, rows, size)])
        except (RuntimeError, MemoryError) as again:
            if not _out_of_memory(again):
                raise
    raise error


def _joined(results, shares):
    """Tensors with a row for each sample, or means over samples, or tuples, lists and dicts of them."""
    first = results[0]
    if isinstance(first, torch.Tensor):
        joined = (torch.cat(results) if first.dim() > 0
                  else sum(result * share for result, share in zip(results, shares)))
        return joined.requires_grad_() if joined.is_floating_point() else joined
    if isinstance(first, dict):
        return type(first)((key, _joined([result[key] for result in results], shares)) for key in first)
    if isinstance(first, (tuple, list)):
        items = [_joined(list(item), shares) for item in zip(*results)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return first


def _prepared():
    if _training is None:
        raise RuntimeError("call prepare() first")
    return _training


def epochs(count: Optional[int] = None, *, steps: Optional[int] = None) -> Iterator[int]:
    """The epochs that are left. The job ends after `count` epochs or `steps` steps, whichever comes first.

    A worker that joins, or a program that resumes from a checkpoint, begins in the middle. A worker that is not needed
    any more leaves the process here, with SystemExit."""
    training = _prepared()
    training.start(count, steps)
    leaf = training.peek()
    while leaf is not None:
        epoch = leaf.epoch
        yield epoch
        if training.leaf is leaf or training.computing:
            raise RuntimeError("the loop over the loader did not run to the end of its epoch: call stop() to end early")
        leaf = training.peek()


def log(**values: Any) -> None:
    """Values of this part of the batch. Their mean over the batch, weighted by samples, is reported once a step; the
    one named loss is shown by `rubato status`."""
    training = _prepared()
    if not training.computing:
        raise RuntimeError("log() was called outside of the loop over the loader")
    for name, value in values.items():
        training.said[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)


def register(**things: Any) -> None:
    """Adds anything with state_dict() and load_state_dict() to what joining workers and checkpoints get. What changes in
    a step must change in a function of on_step, because joining workers make steps without running the loop."""
    training = _prepared()
    if training.job is not None:
        raise RuntimeError("register() must be called before epochs()")
    for name, thing in things.items():
        if not hasattr(thing, "state_dict") or not hasattr(thing, "load_state_dict"):
            raise TypeError(f"{name} is a {type(thing).__name__} without state_dict() and load_state_dict()")
        training.registered[name] = thing


def on_resize(function: Callable[[], Any]) -> Callable[[], Any]:
    """Decorator: runs on every worker between two steps when the members have changed."""
    _prepared().on_resize.append(function)
    return function


def on_step(function: Callable[[StepResult], Any]) -> Callable[[StepResult], Any]:
    """Decorator: runs on every worker after each step that it has applied, with a StepResult. Trackers belong here:
    `if result.leader: ...`. After a death, the next leader may see a step again."""
    _prepared().on_step.append(function)
    return function


def tracker(function: Callable[[int], Any]) -> Callable[[int], Any]:
    """Decorator: opens a tracker, on the worker that leads the job. The function gets the first step that will be written,
    and returns a SummaryWriter of TensorBoard (`SummaryWriter("runs", purge_step=step)`), a run of Weights & Biases
    (`wandb.init(...)`), or something with their methods. It is then told the metrics of every step, and every change of the
    number of workers. When another worker leads, that one opens its own.

    WANDB_RUN_ID becomes run_id() and WANDB_RESUME "allow", unless they are set."""
    _prepared().trackers.add(function)
    return function


def run_id() -> Optional[str]:
    """A name of the job for trackers: the same on all workers, also after the live cluster has stopped and resumed the
    job. Every start of `rubato run` has another one. None: this program trains alone."""
    return _tracker.run_id()


def checkpoint(every: Union[None, str, float] = None, *, steps: Optional[int] = None) -> None:
    """Without arguments: writes a checkpoint at the next step boundary. `every="10m"` (also s, h) or `steps=100`, before
    epochs(): how often one is written."""
    training = _prepared()
    if every is None and steps is None:
        if training.job is None:
            raise RuntimeError("checkpoint() without arguments belongs into the loop")
        training.job.commit()
        return
    if training.job is not None:
        raise RuntimeError("checkpoint(every=...) must be called before epochs()")
    if every is not None:
        training.settings["checkpoint_seconds"] = _seconds(every)
    if steps is not None:
        training.settings["checkpoint_steps"] = steps


def _seconds(text):
    if isinstance(text, (int, float)):
        return float(text)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text)
    if not match:
        raise ValueError(f"every is {text!r}; write it as '30s', '10m' or '2h'")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def notice() -> bool:
    """True if this worker has been told to leave, or the whole job to stop. It leaves by itself at a step boundary."""
    training = _prepared()
    return training.job is not None and training.job.leaving()


def stop() -> None:
    """Ends the job after this step or the next, as if that were its planned end. All workers must call it in the same
    step: decide by what is the same on all of them, like the metrics of on_step."""
    _prepared().job.finish()


def rank() -> int:
    """This worker's place among the workers, from 0 on. Volatile: it may change between any two steps."""
    return _training.rank if _training else 0


def world_size() -> int:
    """The number of workers. Volatile: it may change between any two steps."""
    return _training.size if _training else 1


@contextlib.contextmanager
def step() -> Iterator[None]:
    """For a body with several optimizers or backward passes: `with rt.step(): ...`. Gradients add up in .grad as usual,
    and all optimizers make their step together when the body of the step's last leaf has ended.

    If the body runs out of memory anywhere, it is given up, and runs again with half of the samples at a time. So
    everything that needs the loss, like log(), belongs inside."""
    training = _prepared()
    training.mark("step()")
    training.whole_body = True
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        training.too_large = _without_frames(error)
