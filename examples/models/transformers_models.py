"""BERT, DeBERTa, GPT-2 and Llama as the `transformers` package has them, with random weights (nothing is downloaded)."""

from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

TINY_WORDS = 512


def bert_base() -> nn.Module:
    """BERT-base: 12 layers, 768 features, 12 heads."""
    return BertModel(BertConfig())


def deberta() -> nn.Module:
    """DeBERTa (version 2 of its code) with relative positions in both directions; 4 layers of the base size."""
    return DebertaV2Model(
        DebertaV2Config(  # type: ignore[call-arg]
            vocab_size=TINY_WORDS,
            hidden_size=768,
            intermediate_size=3072,
            num_attention_heads=12,
            num_hidden_layers=4,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=32,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        )
    )


def gpt2_tiny() -> nn.Module:
    """GPT-2, tiny, without a key-value cache."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=TINY_WORDS, n_positions=128, n_embd=64, n_layer=3, n_head=4,
            bos_token_id=0, eos_token_id=0, use_cache=False,
        )
    )  # fmt: skip


def llama_tiny() -> nn.Module:
    """Llama, tiny, with grouped key-value heads and the cache that it returns by default."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=TINY_WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        )
    )  # fmt: skip
