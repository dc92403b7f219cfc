"""What a computation makes: every tensor torch hands out, and by which operation."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Made(TorchDispatchMode):
    """Within the block, notes each operation's name, and the number of numbers of each tensor that is new memory.

    Attributes:
        operations: names, in order.
        sizes: of the new tensors; a view of another, and a tensor written in place, is not new.
    """

    def __init__(self):
        super().__init__()
        self.operations: list[str] = []
        self.sizes: list[int] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        held = {storage(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        self.operations.append(operation.overloadpacket.__name__)
        self.sizes += [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor) and storage(t) not in held]
        return result


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
