"""A small language model on one device. gpt.py is the same program, elastic.

The text is made in code: sums such as "17+25=42;", which a model can learn to continue."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

LETTERS = "0123456789+=;"
LENGTH = 32


class Sums(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        text = ""
        while len(text) <= LENGTH:
            a, b = torch.randint(0, 50, (2,), generator=random).tolist()
            text += f"{a}+{b}={a + b};"
        tokens = torch.tensor([LETTERS.index(letter) for letter in text[:LENGTH + 1]])
        return tokens[:-1], tokens[1:]


class Gpt(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(width, len(LETTERS))
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens):
        return self.out(self.layers(self.tokens(tokens) + self.places, mask=self.mask))


torch.manual_seed(1)
model = Gpt()
opt = torch.optim.AdamW(model.parameters(), lr=0.002)
loader = DataLoader(Sums(), batch_size=64, shuffle=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.005, total_steps=3 * len(loader) + 1)

for epoch in range(3):
    for x, y in loader:
        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
