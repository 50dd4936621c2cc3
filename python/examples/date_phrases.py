"""Translates phrases such as "the third of May 1998" into "1998-05-03": sequence to sequence with attention.

    pushpull worker --pipeline_config_path=date_phrases.config --train_dir=/tmp/dates --num_clones=2 date_phrases.py

The encoder and the decoder may be on two devices (--encoder_device, --decoder_device): the server does not know on which
device a variable is used. It clips the gradient by its global norm and applies Adam. Clone 0 prints at the end which
share of unseen dates is translated without a mistake, by beam search.
"""
import argparse
import random

import torch
from torch import nn

import pushpull
import pushpull.torch

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
            "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
            "nineteenth", "twentieth", "twenty-first", "twenty-second", "twenty-third", "twenty-fourth",
            "twenty-fifth", "twenty-sixth", "twenty-seventh", "twenty-eighth")
CHARACTERS = "\0" + "".join(sorted(set("".join(MONTHS + ORDINALS) + "0123456789 ,-the of")))
DIGITS = "0123456789-"  # of the answer
LENGTH = 10  # of the answer
START = len(DIGITS)  # what the decoder reads before the first character


def example(index):
    """Returns phrase and answer of example `index`. Every eighth one is kept for the test."""
    draw = random.Random(index)
    year, month, day = draw.randint(1800, 2099), draw.randint(1, 12), draw.randint(1, 28)
    name = MONTHS[month - 1]
    phrase = draw.choice((f"the {ORDINALS[day - 1]} of {name} {year}", f"{name} {day}, {year}",
                          f"{ORDINALS[day - 1]} {name} {year}", f"{day} {name} {year}"))
    return phrase, f"{year:04d}-{month:02d}-{day:02d}"


class Phrases(torch.utils.data.Dataset):
    """The examples for training, or those for the test."""

    def __init__(self, size, test=False):
        self.size, self.test = size, test

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return example(8 * index if self.test else index + index // 7 + 1)


def collate(examples):
    """Returns the phrases [batch, longest phrase], padded with 0, and the answers [batch, LENGTH]."""
    phrases = [torch.tensor([CHARACTERS.index(c) for c in phrase]) for phrase, _ in examples]
    answers = torch.tensor([[DIGITS.index(c) for c in answer] for _, answer in examples])
    return nn.utils.rnn.pad_sequence(phrases, batch_first=True), answers


class Translator(nn.Module):
    """A bidirectional GRU that reads, and a GRU with additive attention that writes."""

    def __init__(self, width=96, encoder_device="cpu", decoder_device="cpu"):
        super().__init__()
        self.decoder_device = decoder_device
        self.letters = nn.Embedding(len(CHARACTERS), 32).to(encoder_device)
        self.encoder = nn.GRU(32, width, batch_first=True, bidirectional=True).to(encoder_device)
        self.digits = nn.Embedding(len(DIGITS) + 1, 32).to(decoder_device)
        self.first_state = nn.Linear(2 * width, width).to(decoder_device)
        self.keys = nn.Linear(2 * width, width).to(decoder_device)
        self.query = nn.Linear(width, width).to(decoder_device)
        self.score = nn.Linear(width, 1, bias=False).to(decoder_device)
        self.decoder = nn.GRUCell(32 + 2 * width, width).to(decoder_device)
        self.output = nn.Linear(3 * width, len(DIGITS)).to(decoder_device)

    def read(self, phrases):
        """Returns what the decoder needs of phrases [batch, time]: memory, its keys, what is padding, first state."""
        phrases = phrases.to(self.letters.weight.device)
        padding = phrases == 0
        lengths = (~padding).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(self.letters(phrases), lengths, batch_first=True,
                                                   enforce_sorted=False)
        memory, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        memory, padding = memory.to(self.decoder_device), padding.to(self.decoder_device)
        kept = memory.masked_fill(padding.unsqueeze(2), 0.0).sum(1) / (~padding).sum(1, keepdim=True)
        return memory, self.keys(memory), padding, torch.tanh(self.first_state(kept))

    def write(self, previous, state, memory, keys, padding):
        """Returns logits [batch, len(DIGITS)] of the next character, and the state after it."""
        scores = self.score(torch.tanh(keys + self.query(state).unsqueeze(1))).squeeze(2)
        weights = torch.softmax(scores.masked_fill(padding, -1e9), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        state = self.decoder(torch.cat([self.digits(previous), context], dim=1), state)
        return self.output(torch.cat([state, context], dim=1)), state

    def forward(self, phrases, answers):
        """Returns the mean cross-entropy of the answers, each character of which follows the true ones before it."""
        memory, keys, padding, state = self.read(phrases)
        answers = answers.to(self.decoder_device)
        previous = torch.full_like(answers[:, 0], START)
        logits = []
        for place in range(LENGTH):
            scores, state = self.write(previous, state, memory, keys, padding)
            logits.append(scores)
            previous = answers[:, place]
        return nn.functional.cross_entropy(torch.stack(logits, 1).flatten(0, 1), answers.flatten())

    @torch.no_grad()
    def translate(self, phrase, beams=3):
        """Returns the most probable answer that a beam search finds."""
        phrases, _ = collate([(phrase, "")])
        memory, keys, padding, state = self.read(phrases)
        found = [(0.0, [], state)]
        for _ in range(LENGTH):
            longer = []
            for score, written, state in found:
                previous = torch.tensor([written[-1] if written else START], device=self.decoder_device)
                logits, after = self.write(previous, state, memory, keys, padding)
                best = torch.log_softmax(logits[0], dim=0).topk(beams)
                longer += [(score + float(more), written + [int(character)], after)
                           for more, character in zip(best.values, best.indices)]
            found = sorted(longer, key=lambda beam: -beam[0])[:beams]
        return "".join(DIGITS[character] for character in found[0][1])


def accuracy(model, size):
    """Returns the share of `size` unseen dates that the model translates without a mistake."""
    test = Phrases(size, test=True)
    return sum(model.translate(phrase) == answer for phrase, answer in (test[i] for i in range(size))) / size


def main():
    """Trains as one clone until the job ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100000, help="number of examples to train on")
    parser.add_argument("--test_size", type=int, default=500)
    parser.add_argument("--encoder_device", default="cpu")
    parser.add_argument("--decoder_device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each clone")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(1)  # the clone that comes first gives the initial values
    model = Translator(encoder_device=flags.encoder_device, decoder_device=flags.decoder_device)
    ps = pushpull.connect(model_name="date_phrases")
    trainer = pushpull.torch.Trainer(ps, model)
    for batch in trainer.batches(Phrases(flags.size), collate_fn=collate):
        trainer.step(model(batch.x, batch.y), samples=len(batch))
    if ps.clone == 0:
        right = accuracy(model, flags.test_size)
        print(f"{right:.1%} of {flags.test_size} unseen dates are translated without a mistake")


if __name__ == "__main__":
    main()
