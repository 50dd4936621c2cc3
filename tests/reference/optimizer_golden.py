"""Prints the golden values of tests/common/optimizer/optimizer_golden_test.cc.

usage: python3 tests/reference/optimizer_golden.py

Computes one scalar weight in double precision. The formulas are TensorFlow's, as documented for
tf.train.MomentumOptimizer, RMSPropOptimizer, AdamOptimizer, AdagradOptimizer and
ExponentialMovingAverage; PyTorch's, as documented for torch.optim.AdamW; Algorithm 2 of
arXiv:1904.00962 (LAMB); and the delayed Nesterov update of arXiv:2401.09135. Where PyTorch is installed, its AdamW, Adagrad and SGD are compared too.
"""

import math

GRADIENTS = [0.5, -0.25, 0.125, 2.0, -1.0]
WEIGHT = 1.5
EMA_DECAY = 0.75


def momentum(rate, factor):
    w, a = WEIGHT, 0.0
    for g in GRADIENTS:
        a = factor * a + g
        w -= rate * a
        yield w, a, None


def nesterov(rate, factor):
    w, a = WEIGHT, 0.0
    for g in GRADIENTS:
        a = factor * a + g
        w -= rate * g + rate * factor * a
        yield w, a, None


def sgd(rate):
    w = WEIGHT
    for g in GRADIENTS:
        w -= rate * g
        yield w, 0.0, None


def delayed_nesterov(rate, factor, every):
    w, m, total = WEIGHT, 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        total += g / every
        if t % every == 0:
            m = factor * m + total
            total = 0.0
            w -= rate * (factor * m + g / every)
        else:
            w -= rate * g / every
        yield w, m, total


def adagrad(rate, initial):
    w, s = WEIGHT, initial
    for g in GRADIENTS:
        s += g * g
        w -= rate * g / math.sqrt(s)
        yield w, s, None


def rms_prop(rate, decay, factor, epsilon):
    w, s, m = WEIGHT, 1.0, 0.0
    for g in GRADIENTS:
        s = decay * s + (1 - decay) * g * g
        m = factor * m + rate * g / math.sqrt(s + epsilon)
        w -= m
        yield w, s, m


def adam(rate, epsilon, beta1=0.9, beta2=0.999):
    w, m, v = WEIGHT, 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        rate_t = rate * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        w -= rate_t * m / (math.sqrt(v) + epsilon)
        yield w, m, v


def moments(beta1, beta2):
    m, v = 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        yield m, v, m / (1 - beta1**t), v / (1 - beta2**t)


def adamw(rate, beta1, beta2, epsilon, decay):
    w = WEIGHT
    for m, v, m_hat, v_hat in moments(beta1, beta2):
        w *= 1 - rate * decay
        w -= rate * m_hat / (math.sqrt(v_hat) + epsilon)
        yield w, m, v


def lamb(rate, beta1, beta2, epsilon, decay):
    w = WEIGHT
    for m, v, m_hat, v_hat in moments(beta1, beta2):
        u = m_hat / (math.sqrt(v_hat) + epsilon) + decay * w
        w -= rate * abs(w) / abs(u) * u
        yield w, m, v


def compare_with_torch():
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed")
        return
    for name, make, ours in [
        ("SGD", lambda p: torch.optim.SGD(p, 0.1, momentum=0.875), momentum(0.1, 0.875)),
        ("Nesterov SGD",
         lambda p: torch.optim.SGD(p, 0.1, momentum=0.875, nesterov=True), nesterov(0.1, 0.875)),
        ("AdamW",
         lambda p: torch.optim.AdamW(p, 0.1, (0.75, 0.875), eps=0.125, weight_decay=0.25),
         adamw(0.1, 0.75, 0.875, 0.125, 0.25)),
        ("Adagrad",
         lambda p: torch.optim.Adagrad(p, 0.1, initial_accumulator_value=0.125, eps=0),
         adagrad(0.1, 0.125)),
    ]:
        w = torch.tensor([[WEIGHT]], dtype=torch.float64, requires_grad=True)
        optimizer = make([w])
        worst = 0.0
        for g, (expected, _, _) in zip(GRADIENTS, ours):
            w.grad = torch.tensor([[g]], dtype=torch.float64)
            optimizer.step()
            worst = max(worst, abs(w.item() - expected))
        print(f"PyTorch's {name}: largest difference {worst:.2g}")


def show(name, states, ema_warmup=False):
    ema = WEIGHT
    print(f"// {name}: weight, slot 0, slot 1, EMA after each step")
    for num_updates, (w, first, second) in enumerate(states, start=1):
        decay = min(EMA_DECAY, (1 + num_updates) / (10 + num_updates)) if ema_warmup else EMA_DECAY
        ema = decay * ema + (1 - decay) * w
        print(f"{{{w:.12g}, {first:.12g}, {second or 0:.12g}, {ema:.12g}}},")


show("momentum 0.9, rate 0.1", momentum(0.1, 0.9))
show("RMSProp decay 0.9, momentum 0.8, epsilon 0.01, rate 0.1", rms_prop(0.1, 0.9, 0.8, 0.01))
show("Adam rate 0.01, epsilon 0.1", adam(0.01, 0.1))
show("Nesterov momentum 0.875, rate 0.1", nesterov(0.1, 0.875))
show("Adagrad initial value 0.125, rate 0.1", adagrad(0.1, 0.125))
show("AdamW betas 0.75 and 0.875, epsilon 0.125, weight decay 0.25, rate 0.1",
     adamw(0.1, 0.75, 0.875, 0.125, 0.25))
show("LAMB with AdamW's numbers", lamb(0.1, 0.75, 0.875, 0.125, 0.25))
show("SGD rate 0.7", sgd(0.7))
show("delayed Nesterov momentum 0.875 every 2 steps, rate 0.7", delayed_nesterov(0.7, 0.875, 2))
show("momentum 0.9, rate 0.1, EMA with num_updates", momentum(0.1, 0.9), ema_warmup=True)
compare_with_torch()
