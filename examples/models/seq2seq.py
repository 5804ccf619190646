"""Sequence to sequence with additive attention, written as Python loops over GRU cells.

After Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and Translate" (2014). The decoder feeds its
own best word back for a fixed number of steps, or the target's words where these are given.
"""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """A bidirectional GRU; its two directions are two loops."""

    def __init__(self, words: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.forwards = nn.GRUCell(embedding, hidden)
        self.backwards = nn.GRUCell(embedding, hidden)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.hidden = hidden

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = source.shape
        embedded = self.embedding(source)
        there: list[Tensor] = []
        back: list[Tensor] = []
        h = embedded.new_zeros(batch, self.hidden)
        for t in range(length):
            h = self.forwards(embedded[:, t], h)
            there.append(h)
        h = embedded.new_zeros(batch, self.hidden)
        for t in reversed(range(length)):
            h = self.backwards(embedded[:, t], h)
            back.insert(0, h)
        memory = torch.stack([torch.cat(pair, dim=-1) for pair in zip(there, back, strict=True)], dim=1)
        state = torch.tanh(self.bridge(torch.cat((there[-1], back[0]), dim=-1)))
        return memory, state


class Attention(nn.Module):
    """Additive scores over the encoder's memory; padded positions get no weight."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(2 * hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, state: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        energy = self.score(torch.tanh(self.query(state).unsqueeze(1) + self.key(memory))).squeeze(-1)
        weights = energy.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        return context, weights


class Decoder(nn.Module):
    """One GRU cell that looks at the memory before each word."""

    def __init__(self, words: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.attention = Attention(hidden)
        self.cell = nn.GRUCell(embedding + 2 * hidden, hidden)
        self.out = nn.Linear(3 * hidden + embedding, words)

    def forward(self, word: Tensor, state: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        embedded = self.embedding(word)
        context, weights = self.attention(state, memory, mask)
        state = self.cell(torch.cat([embedded, context], dim=-1), state)
        logits = self.out(torch.cat([state, context, embedded], dim=-1))
        return logits, state, weights


class Seq2Seq(nn.Module):
    """Encoder, attention and decoder.

    Args:
        words: Size of the vocabulary; word 0 is padding and word 1 starts a sentence.
        embedding: Features of a word.
        hidden: Features of a state.
    """

    PAD, START = 0, 1

    def __init__(self, words: int = 200, embedding: int = 32, hidden: int = 48) -> None:
        super().__init__()
        self.encoder = Encoder(words, embedding, hidden)
        self.decoder = Decoder(words, embedding, hidden)

    def forward(
        self, source: Tensor, target: Tensor | None = None, *, max_length: int = 8
    ) -> dict[str, Tensor | list[Tensor]]:
        """Translates source [batch, length].

        Returns:
            A dict of `logits` [batch, steps, words], `words` (one [batch] for each step) and `attention` [batch, steps, length].
        """
        memory, state = self.encoder(source)
        mask = source != self.PAD
        word = torch.full((source.shape[0],), self.START, dtype=torch.long, device=source.device)
        logits, words, attention = [], [], []
        steps = max_length if target is None else target.shape[1]
        for t in range(steps):
            scores, state, weights = self.decoder(word, state, memory, mask)
            logits.append(scores)
            attention.append(weights)
            word = target[:, t] if target is not None else scores.argmax(dim=-1)
            words.append(word)
        return {"logits": torch.stack(logits, 1), "words": words, "attention": torch.stack(attention, 1)}
