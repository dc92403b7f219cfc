"""What is read from a GGUF file is what transformers reads from it, bit for bit, and the file is parsed once."""

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from onematrix import convert

V, D, BLOCKS, HEADS, KV_HEADS, INNER = 96, 64, 2, 4, 2, 96


def shapes() -> dict[str, tuple[int, ...]]:
    """A small LLaMA's tensors under their GGUF names."""
    block = {
        "attn_norm": (D,),
        "attn_q": (D, D),
        "attn_k": (D * KV_HEADS // HEADS, D),
        "attn_v": (D * KV_HEADS // HEADS, D),
        "attn_output": (D, D),
        "ffn_norm": (D,),
        "ffn_gate": (INNER, D),
        "ffn_up": (INNER, D),
        "ffn_down": (D, INNER),
    }
    blocks = {f"blk.{n}.{name}.weight": shape for n in range(BLOCKS) for name, shape in block.items()}
    return {"token_embd.weight": (V, D), "output_norm.weight": (D,)} | blocks


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A tied LLaMA with random values, quantised as SmolLM2's is: the table in Q8_0, the blocks in Q4_1."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(D)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(V)
    writer.add_tokenizer_model("gpt2")
    letters = [chr(33 + i) for i in range(V - 3)]
    writer.add_token_list([*letters, "!#", "#$", "<|end|>"])
    writer.add_token_types([1] * (V - 1) + [3])
    writer.add_token_merges(["! #", "# $"])
    writer.add_bos_token_id(V - 1)
    writer.add_eos_token_id(V - 1)
    values = np.random.default_rng(0)
    for name, shape in shapes().items():
        kind = gguf.GGMLQuantizationType.F32
        if len(shape) == 2:
            kind = gguf.GGMLQuantizationType.Q8_0 if name.startswith("token") else gguf.GGMLQuantizationType.Q4_1
        numbers = values.normal(size=shape).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def folder(file, tmp_path_factory):
    into = tmp_path_factory.mktemp("converted")
    convert.convert(file, into)
    return into


def test_values_are_those_that_transformers_reads(file, folder):
    plain = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    ours = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
    theirs = dict(plain.named_parameters())
    assert {name for name, _ in ours.named_parameters()} == set(theirs)
    for name, value in ours.named_parameters():
        assert value.dtype == torch.float32
        assert torch.equal(value, theirs[name]), name
    ids = torch.tensor([[1, 5, 9, 2]])
    assert torch.equal(ours(ids).logits, plain(ids).logits)


def test_the_model_stays_tied_and_says_nothing_of_quantising(folder):
    ours = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
    assert ours.get_input_embeddings().weight.data_ptr() == ours.get_output_embeddings().weight.data_ptr()
    assert "quantization_config" not in (folder / "config.json").read_text(encoding="utf-8")


def test_the_tokenizer_is_the_files(file, folder):
    plain = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ours = AutoTokenizer.from_pretrained(folder)
    assert ours.get_vocab() == plain.get_vocab()
    assert ours.encode("!#$") == plain.encode("!#$")


def test_rows_of_the_heads_come_back_to_their_places(file, folder):
    """Without the turn the model would load and speak nonsense: the check above must see it."""
    with convert.read_once(file) as reader:
        stored = next(t for t in reader.tensors if t.name == "blk.0.attn_q.weight")
    as_stored = torch.tensor(gguf.quants.dequantize(stored.data, stored.tensor_type))
    ours = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True).model.layers[0].self_attn.q_proj.weight
    assert not torch.equal(as_stored, ours)
    assert torch.equal(as_stored[0::2][: D // HEADS // 2], ours[: D // HEADS // 2])


def test_the_file_is_parsed_once(file, tmp_path, monkeypatch):
    parsed = []
    monkeypatch.setattr(convert.Reader, "_build_tensors", lambda self, *args: parsed.append(self) or build(self, *args))
    build = gguf.GGUFReader._build_tensors
    convert.convert(file, tmp_path)
    assert len(parsed) == 1
