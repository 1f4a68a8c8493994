"""The graph of a real model, with measured times, for `rubato graph place` (docs/graph.md).

    python3 -m rubato.graph torchvision.models:resnet18 --input 8x3x224x224 --out resnet18.json
    python3 -m rubato.graph mine.py:make_model --input 64x784 --backward

The model is traced with torch.fx, so its control flow must not depend on the data. Each operator runs several times on
this machine; the fastest time counts. With --backward the gradients are measured as well. All of this is one type of
device: "cpu", or "gpu" if CUDA is there.
"""
import argparse
import importlib
import importlib.util
import json
import sys
import time


def sync(torch):
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fastest(torch, run, repeats):
    """The seconds of the fastest run, and the result of the last."""
    best, result = float("inf"), None
    for _ in range(repeats):
        sync(torch)
        began = time.perf_counter()
        result = run()
        sync(torch)
        best = min(best, time.perf_counter() - began)
    return best, result


def tensors_in(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in tensors_in(torch, part)]
    if isinstance(value, dict):
        return tensors_in(torch, list(value.values()))
    return []


def size_of(tensors):
    return float(sum(one.numel() * one.element_size() for one in tensors))


def detached(torch, value):
    """The same value as leaves of a new autograd graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.is_floating_point())
    if isinstance(value, (list, tuple)):
        return type(value)(detached(torch, one) for one in value)
    return value


def measure(model, inputs, name, backward=False, repeats=5):
    """The graph as a dictionary: what docs/graph.md describes."""
    import torch
    import torch.fx

    traced = torch.fx.symbolic_trace(model)
    device = "gpu" if torch.cuda.is_available() else "cpu"
    operators, backward_of, users = [], {}, {}

    class Meter(torch.fx.Interpreter):
        def run_node(self, node):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            args = detached(torch, args)

            def forward():
                return getattr(self, node.op)(node.target, args, kwargs)

            if node.op == "output":
                return forward()
            if node.op in ("placeholder", "get_attr"):
                seconds, result = 0.0, super().run_node(node)
            else:
                seconds, result = fastest(torch, forward, repeats)
            out = tensors_in(torch, result)
            own = list(self.fetch_attr(node.target).parameters()) if node.op == "call_module" else []
            before = [one.name for one in node.all_input_nodes]
            operators.append({"name": node.name, "seconds": {device: seconds}, "bytes": size_of(out),
                              "memory": size_of(out) + 3 * size_of(own), "inputs": before})
            for one in before:
                users.setdefault(one, []).append(node.name)
            # The gradients of inputs and weights, if anything here has one.
            roots = [one for one in out if one.requires_grad]
            leaves = [one for one in tensors_in(torch, [args, kwargs]) if one.requires_grad and one.is_leaf] + own
            if backward and roots and leaves and node.op not in ("placeholder", "get_attr"):
                ones = [torch.ones_like(one) for one in roots]
                backward_of[node.name], _ = fastest(torch, lambda: torch.autograd.grad(
                    roots, leaves, ones, retain_graph=True, allow_unused=True), repeats)
            return result

    Meter(traced).run(*inputs)
    sizes = {one["name"]: one["bytes"] for one in operators}
    for one in reversed(operators[:]):
        forward = one["name"]
        if forward not in backward_of:
            continue
        gradients = [{"name": f"{user} backward", "bytes": sizes[forward]}
                     for user in users.get(forward, []) if user in backward_of]
        operators.append({"name": f"{forward} backward", "seconds": {device: backward_of[forward]},
                          "inputs": [forward] + gradients, "group": forward})
    return {"name": name, "operators": operators}


def load(spec):
    """MODULE:FUNCTION or FILE.py:FUNCTION: something that returns the model."""
    place, _, function = spec.rpartition(":")
    if not place:
        raise ValueError(f"{spec}: must be MODULE:FUNCTION or FILE.py:FUNCTION")
    if place.endswith(".py"):
        found = importlib.util.spec_from_file_location("rubato_graph_model", place)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    return getattr(module, function)()


def main():
    parser = argparse.ArgumentParser(prog="python3 -m rubato.graph", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="MODULE:FUNCTION or FILE.py:FUNCTION that returns the model")
    parser.add_argument("--input", action="append", required=True, metavar="AxBxC",
                        help="shape of an input, filled with random numbers; may be repeated")
    parser.add_argument("--backward", action="store_true", help="measure the gradients, too")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each operator (5)")
    parser.add_argument("--out", default="-", metavar="FILE", help="file to write; - is standard output")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("rubato.graph: torch is missing; install python3-torch", file=sys.stderr)
        return 2
    try:
        shapes = [[int(side) for side in text.split("x")] for text in args.input]
        model = load(args.model)
        torch.manual_seed(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        inputs = [torch.randn(*shape, device=device) for shape in shapes]
        graph = measure(model.to(device), inputs, args.model.rpartition(":")[2], args.backward, max(1, args.repeats))
    except (ValueError, OSError, ImportError, AttributeError, RuntimeError, torch.fx.proxy.TraceError) as error:
        print(f"rubato.graph: {args.model}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    lines = ",\n".join("  " + json.dumps(one) for one in graph["operators"])
    text = f'{{"name": {json.dumps(graph["name"])},\n "operators": [\n{lines}\n]}}\n'
    if args.out == "-":
        sys.stdout.write(text)
    else:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
