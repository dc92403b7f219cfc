"""A LLaMA in a GGUF file, as the folder that transformers would save of it, bit for bit.

transformers reads GGUF itself, but parses the file anew for each thing it is asked (the configuration, the tokenizer,
the names, the values) and refuses to save what it read. Here the file is parsed once, and transformers is
asked only for the configuration and the tokenizer.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel


class Reader(gguf.GGUFReader):
    """The library's reader on a plain array: slicing a `numpy.memmap` a million times takes it seven times as long."""

    @property
    def data(self) -> np.ndarray:
        return self.bytes

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self.bytes = np.asarray(mapped)


@contextmanager
def read_once(file: Path) -> Iterator[Reader]:
    """Parse the file, and let transformers have what was parsed."""
    once = functools.cache(Reader)
    with mock.patch.object(gguf, "GGUFReader", lambda path: once(str(path))):
        yield once(str(file))


def convert(file: Path, into: Path) -> None:
    """Write `model.safetensors`, the configuration and the tokenizer of a GGUF file into a directory."""
    here = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    with read_once(file) as reader:
        config = AutoConfig.from_pretrained(**here)
        tokenizer = AutoTokenizer.from_pretrained(**here)
    settings = {key: value for key, value in config.to_dict().items() if key != "quantization_config"}
    with torch.device("meta"):  # no values yet: all of them come from the file
        network = AutoModelForCausalLM.from_config(type(config).from_dict(settings))
    network.tie_weights()  # so that the head is not asked for: older transformers tie only after loading
    network.load_state_dict(values(reader, network), strict=False, assign=True)
    network.tie_weights()
    network.save_pretrained(into)
    tokenizer.save_pretrained(into)


def values(reader: Reader, network: PreTrainedModel) -> dict[str, Tensor]:
    """Every parameter's values in fp32, by the network's own names."""
    config = network.config
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    found = {}
    for name, _ in network.named_parameters():
        layer, _, kind = name.rpartition(".")
        tensor = stored[f"{known.get_name(layer)}.{kind}"]
        value = torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        if head_count := heads.get(layer.rpartition(".")[2]):
            # GGUF keeps the two halves that rotary positions turn into each other side by side, row by row
            value = value.unflatten(0, (head_count, -1, 2)).transpose(1, 2).flatten(0, 2)
        found[name] = value
    return found
