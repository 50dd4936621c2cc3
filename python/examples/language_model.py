"""Trains a small transformer that predicts the next character of sentences from a little grammar.

    pushpull worker --pipeline_config_path=language_model.config --train_dir=/tmp/words --num_clones=2 language_model.py

The grammar gives the exact probability of every next character, so the best possible perplexity and accuracy on the
unseen texts are known. Clone 0 prints them beside the model's. To do well, the model must remember over a relative
clause whether the subject is one or many: "the cats that the dog sees sleep here."
"""
import argparse
import math
import random

import torch
from torch import nn

import pushpull
import pushpull.torch

NOUNS = (("cat", 4), ("dog", 3), ("bird", 2), ("horse", 2), ("snake", 1), ("goat", 1))
ADJECTIVES = (("old", 3), ("small", 2), ("green", 1), ("sleepy", 1))
VERBS = (("sleep", 3), ("sing", 2), ("run", 2), ("jump", 1), ("snore", 1))
VERBS_WITH_OBJECT = (("see", 3), ("hear", 2), ("like", 2), ("chase", 1))
ENDINGS = (("here.", 3), ("at night.", 2), ("in the garden.", 2), ("near a river.", 1), ("often.", 1))
LENGTH = 64  # characters of a text


def make_grammar():
    """Returns state -> list of (text, weight, next state). In one state no text is the beginning of another one."""
    grammar = {"start": [("the ", 3, "noun"), ("a ", 1, "one")]}
    ones, many = [(f"{n} ", w, "1") for n, w in NOUNS], [(f"{n}s ", w, "2") for n, w in NOUNS]
    adjectives = [(f"{a} ", w / 5) for a, w in ADJECTIVES]
    grammar["noun"] = ones + many + [(text, 2 * w, "noun") for text, w in adjectives]
    grammar["one"] = ones + [(text, w, "one") for text, w in adjectives]
    for number, ending in (("1", "s"), ("2", "")):
        verbs = [(f"{v}{ending} ", w, "place") for v, w in VERBS]
        grammar[number] = verbs + [("that the ", 4, f"clause noun {number}")]
        grammar[f"verb {number}"] = verbs
        nouns = [(f"{n}{s} ", w, f"clause verb {s} {number}") for n, w in NOUNS for s in ("", "s")]
        grammar[f"clause noun {number}"] = nouns
        for s, of_verb in (("", "s"), ("s", "")):
            grammar[f"clause verb {s} {number}"] = [(f"{v}{of_verb} ", w, f"verb {number}")
                                                    for v, w in VERBS_WITH_OBJECT]
    grammar["place"] = [(f"{text}\n", weight, "start") for text, weight in ENDINGS]
    return grammar


GRAMMAR = make_grammar()
CHARACTERS = "\n" + "".join(sorted({c for choices in GRAMMAR.values() for text, _, _ in choices for c in text} - {"\n"}))


def make_text(seed):
    """Returns LENGTH characters of sentences."""
    draw, state, text = random.Random(seed), "start", ""
    while len(text) < LENGTH:
        piece, _, state = draw.choices(GRAMMAR[state], [weight for _, weight, _ in GRAMMAR[state]])[0]
        text += piece
    return text[:LENGTH]


def best_prediction(text):
    """Returns for each character of a text (its probability, whether it is the most probable one)."""
    state, begun, result = "start", "", []
    for character in text:
        weights = {}
        for piece, weight, _ in GRAMMAR[state]:
            if piece.startswith(begun):
                weights[piece[len(begun)]] = weights.get(piece[len(begun)], 0) + weight
        result.append((weights[character] / sum(weights.values()), character == max(weights, key=weights.get)))
        begun += character
        for piece, _, after in GRAMMAR[state]:
            if piece == begun:
                state, begun = after, ""
    return result


class Texts(torch.utils.data.Dataset):
    """Texts as numbers of characters [LENGTH]: those for training, or those for the test."""

    def __init__(self, size, test=False):
        self.texts = [make_text(2 * i + int(test)) for i in range(size)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.tensor([CHARACTERS.index(c) for c in self.texts[index]])


class LanguageModel(nn.Module):
    """A transformer whose attention sees the characters before a place only."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.output = nn.Linear(width, len(CHARACTERS))

    def forward(self, texts):
        """Returns logits [batch, LENGTH, characters] of the characters; a text follows the end of a sentence."""
        read = nn.functional.pad(texts[:, :-1], (1, 0), value=CHARACTERS.index("\n"))
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.output(self.layers(self.characters(read) + self.places, mask, is_causal=True))


def losses_and_hits(model, texts):
    """Returns the mean cross-entropy in nats, and the share of characters that the model finds most probable."""
    logits = model(texts).flatten(0, 1)
    return (nn.functional.cross_entropy(logits, texts.flatten()),
            (logits.argmax(1) == texts.flatten()).float().mean())


@torch.no_grad()
def evaluate(model, test):
    """Returns (perplexity, accuracy) of the model and of the best possible prediction."""
    model.eval()
    parts = [losses_and_hits(model, texts) for texts in torch.utils.data.DataLoader(test, batch_size=len(test) // 4)]
    loss, accuracy = (float(sum(values)) / len(parts) for values in zip(*parts))
    best = [place for text in test.texts for place in best_prediction(text)]
    best_loss = -sum(math.log(probability) for probability, _ in best) / len(best)
    return math.exp(loss), accuracy, math.exp(best_loss), sum(hit for _, hit in best) / len(best)


def main():
    """Trains as one clone until the job ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20000, help="number of texts to train on")
    parser.add_argument("--test_size", type=int, default=1000, help="number of unseen texts, a multiple of 4")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each clone")
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(flags.seed)
    model = LanguageModel()
    trainer = pushpull.torch.Trainer(pushpull.connect(model_name="language_model"), model)
    for batch in trainer.batches(Texts(flags.size)):
        loss, accuracy = losses_and_hits(model, batch.x)
        trainer.step(loss, samples=len(batch), metrics={"accuracy": accuracy})
    if trainer.ps.clone == 0:
        perplexity, accuracy, best_perplexity, best_accuracy = evaluate(model, Texts(flags.test_size, test=True))
        print(f"unseen texts: perplexity {perplexity:.4f} (best possible {best_perplexity:.4f}), "
              f"accuracy {100 * accuracy:.2f}% (best possible {100 * best_accuracy:.2f}%)")


if __name__ == "__main__":
    main()
