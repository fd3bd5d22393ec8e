"""torch optimisers without the import of torch's compiler."""

import inspect

import torch


class Uncompiled(torch.optim.Optimizer):
    """torch optimiser without the wrappers that exclude its methods from compilation.

    The wrappers import torch's whole compiler, which takes a second. Shunter compiles no optimiser, see
    `shunter.engine.loop.compiled_step`.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class Adam(Uncompiled, torch.optim.Adam):
    """Adam as implemented in torch, without loading torch's compiler."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class SGD(Uncompiled, torch.optim.SGD):
    """SGD as implemented in torch, without loading torch's compiler."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class Adagrad(Uncompiled, torch.optim.Adagrad):
    """Adagrad as implemented in torch, without loading torch's compiler."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adagrad.step))
